"""torch.compile makes one graph of each layer: nothing in it depends on data. Its backends compute what torch does."""

import copy

import pytest
import torch
from torch.utils._pytree import tree_leaves

from fairseq_luna.modules import (
    LunaAttention,
    LunaCausalAttention,
    PatternAttention,
    PatternCausalAttention,
    ReformerAttention,
)
from fairseq_luna.modules.pattern_projections import sparse
from numeric import sequences
from shared.variants import VARIANTS
from support import PAD, as_prefix, build_model, sentences

# fairseq's wrapper for --checkpoint-activations cannot be compiled.
COMPILED = {name: flags for name, flags in VARIANTS.items() if "checkpoint_activations" not in flags}
EVERY_VARIANT = pytest.mark.parametrize("flags", COMPILED.values(), ids=COMPILED)
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


@EVERY_VARIANT
@pytest.mark.parametrize("source", [WHOLE, PADDED], ids=["whole", "padded"])
def test_layers_in_training(flags, source):
    model = build_model(**flags)

    def run():
        model(source, source.ne(PAD).sum(1), as_prefix(source))

    assert_one_graph(model.encoder.layers[0], run)
    assert_one_graph(model.decoder.layers[0], run)


@EVERY_VARIANT
def test_a_layer_in_a_decoding_step(flags):
    model = build_model(**flags).eval()

    def run():
        state, encoder_out = {}, model.encoder(PADDED)
        for t in range(1, 4):
            model.decoder(WHOLE[:, :t], encoder_out=encoder_out, incremental_state=state)

    assert_one_graph(model.decoder.layers[0], run)


CUT = {  # attentions that cut a sequence, with chunks of 8 steps, and Luna's
    "sparse-encoder": lambda: PatternAttention(**SIZES, pattern=sparse, stride=8),
    "sparse-decoder": lambda: PatternCausalAttention(**SIZES, pattern=sparse, stride=8),
    "reformer-encoder": lambda: ReformerAttention(**SIZES, chunk_size=8),
    "luna-encoder": lambda: LunaAttention(**SIZES, num_packed_heads=2),
    "luna-decoder": lambda: LunaCausalAttention(**SIZES),
}
SIZES = {"embed_dim": 16, "num_heads": 2}


def result_and_gradients(function, module, name, steps):
    """Of a sequence of ``steps``, with 3 slots for Luna."""
    x, slots = sequences((steps, 3, 16), (3, 3, 16), dtype=torch.float32)
    given = {"luna-encoder": (x, slots, x), "luna-decoder": (x, slots)}.get(name, (x,))
    y = tree_leaves(function(*given))[0]
    return y, *torch.autograd.grad(y.square().sum(), [*given, *module.parameters()], allow_unused=True)


@pytest.mark.slow
@pytest.mark.parametrize("name", CUT)
def test_a_graph_for_any_length_at_below_and_above_a_multiple_of_the_chunk(name):
    torch.manual_seed(0)
    module = CUT[name]()
    torch._dynamo.reset()
    compiled = torch.compile(module, fullgraph=True, backend="aot_eager", dynamic=True)
    for steps in (65, 64, 63):  # in the forms of long sequences
        expected, found = (result_and_gradients(f, module, name, steps) for f in (module, compiled))
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)
