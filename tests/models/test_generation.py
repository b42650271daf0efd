"""A decoder's step is a pure function of tensors, which fairseq calls through one adapter."""

import copy

import pytest
import torch
from fairseq.modules import SinusoidalPositionalEmbedding

from fairseq_luna.exporting.decoder_step import as_tensors, from_tensors
from fairseq_luna.models.shared.generation import KEY
from fairseq_luna.models.shared.positions import position_of_step
from fairseq_luna.modules.decoding_state import flatten_state
from support import PAD, build_model, sentences, step_by_step
from variants import VARIANTS

EVERY_VARIANT = pytest.mark.parametrize("flags", VARIANTS.values(), ids=VARIANTS)
SOURCE, PREFIX = sentences(9, 5, 7, left=True), sentences(12, 12, 12, seed=3)


def begun(flags, steps=4):
    """A decoder, what it reads of the source, and its state after some steps."""
    model = build_model(**flags).eval()
    encoder_out = model.encoder(SOURCE, SOURCE.ne(PAD).sum(1))
    source = model.decoder.read_source(encoder_out)
    state = model.decoder.initial_state(source, encoder_out)
    for t in range(steps):
        _, state = model.decoder.step(PREFIX[:, t], t, source, state)
    return model, encoder_out, source, state


@EVERY_VARIANT
@torch.no_grad()
def test_a_step_is_a_pure_function_of_tensors(flags):
    model, _, source, state = begun(flags)
    before = copy.deepcopy((flatten_state(source), flatten_state(state)))
    expected, after = model.decoder.step(PREFIX[:, 4], 4, source, state)
    again, after_again = model.decoder.step(PREFIX[:, 4], torch.tensor([4]), source, state)
    assert again.equal(expected) and expected.shape == (3, len(model.decoder.dictionary))
    for first, second in ((flatten_state(after), flatten_state(after_again)), (flatten_state(state), before[1])):
        assert first.keys() == second.keys() and all(tensor.equal(second[name]) for name, tensor in first.items())
    assert all(tensor.equal(before[0][name]) for name, tensor in flatten_state(source).items())
    assert {len(tensor) for tensor in flatten_state(after).values()} == {3}
    assert {len(tensor) for tensor in flatten_state(source).values()} <= {3}


@EVERY_VARIANT
@torch.no_grad()
def test_a_state_is_rebuilt_from_its_named_tensors(flags):
    model, _, source, state = begun(flags)
    tensors = as_tensors(source, state)
    rebuilt = from_tensors(model.decoder, tensors)
    assert as_tensors(*rebuilt).keys() == tensors.keys()
    expected = model.decoder.step(PREFIX[:, 4], 4, source, state)[0]
    assert model.decoder.step(PREFIX[:, 4], 4, *rebuilt)[0].equal(expected)


@EVERY_VARIANT
@torch.no_grad()
def test_fairseqs_dictionary_has_one_entry_and_beams_share_a_source(flags):
    model, encoder_out, _, _ = begun(flags, steps=0)
    beams = torch.arange(3).repeat_interleave(2)
    read, kept = model.encoder.reorder_encoder_out(encoder_out, beams), {}
    decoder, prefix = model.decoder, PREFIX[beams]
    decoder(prefix[:, :1], encoder_out=read, incremental_state=kept)
    assert [*kept] == [KEY]
    source = kept[KEY].source
    decoder.reorder_incremental_state_scripting(kept, torch.tensor([1, 0, 2, 2, 5, 4]))
    assert kept[KEY].source is source, "a batch of the same size has the same sentences"
    decoder.reorder_incremental_state_scripting(kept, torch.tensor([1, 0, 4, 5]))
    assert {len(tensor) for tensor in flatten_state(kept[KEY].source).values()} <= {2}
    assert {len(tensor) for tensor in flatten_state(kept[KEY].state).values()} == {4}


@EVERY_VARIANT
@torch.no_grad()
def test_an_incremental_pass_returns_what_a_whole_pass_returns(flags):
    model, encoder_out, _, _ = begun(flags, steps=0)
    crossless = flags.get("no_cross_attention", False)
    options = {"encoder_out": encoder_out, "alignment_layer": None if crossless else 0, "features_only": True}
    features, extra = model.decoder(PREFIX, **options)
    kept = {}
    for t in range(PREFIX.shape[1]):
        found, of_step = model.decoder(PREFIX[:, : t + 1], incremental_state=kept, **options)
        torch.testing.assert_close(found[:, 0], features[:, t], rtol=1e-3, atol=1e-4)
        for inner, expected in zip(of_step["inner_states"], extra["inner_states"], strict=True):
            torch.testing.assert_close(inner[0], expected[t], rtol=1e-3, atol=1e-4)
        if not crossless:
            torch.testing.assert_close(of_step["attn"][0][:, 0], extra["attn"][0][:, t], rtol=1e-3, atol=1e-4)


@EVERY_VARIANT
@torch.no_grad()
def test_parameters_of_a_layer_are_needed_only_while_it_is_called(flags):
    """FSDP gathers them for a call of the layer; forward hooks act at the same time."""
    model, encoder_out, _, _ = begun(flags, steps=0)
    expected = step_by_step(model, PREFIX[:, :6], encoder_out)
    stored = {parameter: parameter.detach().clone() for parameter in model.decoder.layers.parameters()}

    def gather(layer, _):
        for parameter in layer.parameters():
            parameter.copy_(stored[parameter])

    def free(layer, *_):
        for parameter in layer.parameters():
            parameter.fill_(torch.nan)

    for layer in model.decoder.layers:
        free(layer)
        layer.register_forward_pre_hook(gather)
        layer.register_forward_hook(free)
    assert step_by_step(model, PREFIX[:, :6], encoder_out).equal(expected)


@torch.no_grad()
def test_the_source_is_read_again_for_weights_that_are_asked_for_later():
    model = build_model("luna").eval()
    encoder_out, results = model.encoder(SOURCE, SOURCE.ne(PAD).sum(1)), []
    for layers in ((0, 1, 0), (None, None, 0)):
        kept = {}
        for t, layer in enumerate(layers):
            given = {"encoder_out": encoder_out, "incremental_state": kept, "alignment_layer": layer}
            logits, extra = model.decoder(PREFIX[:, : t + 1], **given)
        results.append((logits, extra["attn"][0]))
    for first, second in zip(*results, strict=True):
        assert first.equal(second)


@torch.no_grad()
def test_generation_uses_every_layer_in_training_mode_too():
    model = build_model("mixed", decoder_layerdrop=0.9, decoder_layers=4)
    encoder_out = model.eval().encoder(SOURCE, SOURCE.ne(PAD).sum(1))
    expected = step_by_step(model, PREFIX, encoder_out)
    assert step_by_step(model.train(), PREFIX, encoder_out).equal(expected)


def test_positions_follow_the_model_where_fairseq_keeps_them_outside_its_buffers():
    """As in fairseq 0.12.2, which has a buffer of one number instead."""
    table = SinusoidalPositionalEmbedding(8, PAD, 16)
    older = SinusoidalPositionalEmbedding(8, PAD, 16)
    older._buffers.pop("weights", None)
    older.weights = table.weights
    older._float_tensor = torch.zeros(1, dtype=torch.float64)
    for position in (3, 40, torch.tensor([40])):
        found = position_of_step(older, position)
        assert found.dtype == torch.float64
        assert found.float().equal(position_of_step(table, position))
    assert position_of_step(None, 3) is None


@pytest.mark.parametrize("padded", [False, True], ids=["whole", "padded"])
@torch.no_grad()
def test_an_encoder_returns_the_lengths_of_sources_also_in_half_precision(padded):
    """bf16 has no 301."""
    source = sentences(301, 290 if padded else 301)
    for family in ("luna", "mixed"):
        out = build_model(family).to(torch.bfloat16).encoder(source, source.ne(PAD).sum(1))
        assert out["src_lengths"][0].tolist() == source.ne(PAD).sum(1)[:, None].tolist()
