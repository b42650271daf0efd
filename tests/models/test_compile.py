"""torch.compile makes one graph of each layer: nothing in it depends on data. Its backends compute what torch does."""

import copy

import pytest
import torch
from torch.utils._pytree import tree_leaves

from every_attention import build, call, every, randn
from support import PAD, as_prefix, build_model, sentences
from variants import VARIANTS

# fairseq's wrapper for --checkpoint-activations cannot be compiled.
COMPILED = {name: flags for name, flags in VARIANTS.items() if "checkpoint_activations" not in flags}
EVERY_VARIANT = pytest.mark.parametrize("flags", COMPILED.values(), ids=COMPILED)
# Of the attentions by name, one without a state, those with buffers that change, and one with a memory: the code of the
# layers around an attention is the same for every name.
OF_LAYERS = ("softmax", "performer", "routing", "transformer-xl", "convolution-prenorm")


def is_quick(name):
    return COMPILED[name]["family"] != "mixed" or name.removeprefix("mixed-") in OF_LAYERS


WHOLE, PADDED = sentences(7, 7), sentences(7, 4)


def last_call(layer, run):
    """The arguments with which ``run()`` last called ``layer``, from before that call."""
    calls = []
    hook = layer.register_forward_pre_hook(
        lambda _, args, kwargs: calls.append(copy.deepcopy((args, kwargs))), with_kwargs=True
    )
    with torch.no_grad():
        run()
    hook.remove()
    return calls[-1]


def assert_one_graph(layer, run):
    call, results = last_call(layer, run), []
    parameters = copy.deepcopy(layer.state_dict())
    torch._dynamo.reset()
    for each in (layer, torch.compile(layer, backend="eager", fullgraph=True)):
        layer.load_state_dict(parameters)  # quantisation noise writes to the weights
        args, kwargs = copy.deepcopy(call)
        torch.manual_seed(1)
        results.append(tree_leaves(each(*args, **kwargs)))
    for expected, actual in zip(*results, strict=True):
        assert expected is actual is None or expected.equal(actual)


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if is_quick(name) else pytest.mark.inductor) for name in COMPILED]
)
def test_layers_in_training(name):
    model = build_model(**COMPILED[name])

    def run():
        model(PADDED, PADDED.ne(PAD).sum(1), as_prefix(PADDED))

    assert_one_graph(model.encoder.layers[0], run)
    assert_one_graph(model.decoder.layers[0], run)


@EVERY_VARIANT
@torch.no_grad()
def test_a_decoding_step(flags):
    """Of the whole decoder, at any position."""
    # Luna's layers pass packed slots to the next one.
    layers = {"decoder_layers": 1} if flags["family"] == "mixed" else {}
    model, results = build_model(**flags, **layers).eval(), []
    decoder, encoder_out = model.decoder, model.encoder(PADDED)
    source = decoder.read_source(encoder_out)
    state = decoder.initial_state(source, encoder_out, beams=1)
    for t in range(2):
        state = decoder.step(WHOLE[:, t], t, source, state)[1]
    torch._dynamo.reset()
    for step in (decoder.step, torch.compile(decoder.step, backend="eager", fullgraph=True)):
        torch.manual_seed(1)
        results.append(tree_leaves(step(WHOLE[:, 2], torch.tensor([2]), source, state)))
    for expected, actual in zip(*results, strict=True):
        assert expected is actual is None or expected.equal(actual)


def result_and_gradients(function, module, place, steps):
    x, source = (randn(steps, seed=seed).requires_grad_() for seed in (0, 1))
    for each in (x, source):
        torch._dynamo.maybe_mark_dynamic(each, 0)  # a graph for any length, but for a batch of one size: half as slow
    torch.manual_seed(2)
    y = call(function, place, x, source=source)
    return y, *torch.autograd.grad(y.square().sum(), [x, source, *module.parameters()], allow_unused=True)


def assert_compiled_is_the_module(name, place, lengths, backend):
    # Short chunks where flags choose them, so that the lengths are around a multiple of every chunk.
    module = build(name, place, **({"attention_chunk": 32} if name == "flash" else {}))
    torch._dynamo.reset()
    compiled = torch.compile(module, fullgraph=True, backend=backend)
    for steps in lengths:
        expected, found = (result_and_gradients(f, module, place, steps) for f in (module, compiled))
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)


# What differs before and after an op alone; its gradients are compiled with the attention that is named.
LIKE = {
    **dict.fromkeys(("performer", "rfa", "efficient", "hedgehog"), "linear"),
    **dict.fromkeys(("ssd", "gated-rfa"), "retention"),
    **dict.fromkeys(("synthesizer-factorized-dense", "synthesizer-factorized-random"), "synthesizer-dense"),
    **{
        "bp-encoder": "bp",
        "transformer-xl": "transformer-xl-segments",
        "longformer": "local",
        "luna-segments": "luna",
        "convolution": "linear",
        "gated-delta-encoder": "gated-delta",
    },
}


# One of each way of computing: a packed sequence, a state, a state with decay, keys that are chosen, learned keys, and
# weights without keys.
KINDS = ("luna", "linear", "retention", "topk", "external", "synthesizer-dense")


@pytest.mark.slow
@every(only=KINDS)
def test_a_graph_for_any_length_below_at_and_far_below_a_multiple_of_the_chunk(name, place):
    like_another = {name, f"{name}-{place}"} & LIKE.keys()
    assert_compiled_is_the_module(name, place, (63, 64, 39), "eager" if like_another else "aot_eager")


# torch needs 2 to 170 seconds for the graphs of each, together twenty minutes.
@pytest.mark.inductor
@every(without=("luna-convolution", "luna-untied", "block-unordered", *KINDS))  # graphs of luna, block and convolution
def test_a_graph_for_any_length_of_the_other_attentions(name, place):
    test_a_graph_for_any_length_below_at_and_far_below_a_multiple_of_the_chunk(name, place)


@pytest.mark.inductor
@every()
def test_inductor(name, place):
    assert_compiled_is_the_module(name, place, (20,), "inductor")
