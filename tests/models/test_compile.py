"""torch.compile makes one graph of each layer: nothing in it depends on data."""

import copy

import pytest
import torch
from torch.utils._pytree import tree_leaves

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
    torch._dynamo.reset()
    for each in (layer, torch.compile(layer, backend="eager", fullgraph=True)):
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
