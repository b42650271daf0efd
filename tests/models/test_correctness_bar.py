"""Tests of whole encoder-decoders: every family, with each of its flags."""

from itertools import pairwise

import pytest
import torch
import torch.nn.functional as F
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from shared.variants import FAMILIES, VARIANTS
from support import PAD, as_prefix, build_model, sentences, step_by_step

EVERY_VARIANT = pytest.mark.parametrize("flags", VARIANTS.values(), ids=VARIANTS.keys())
EVERY_FAMILY = pytest.mark.parametrize("family", FAMILIES)
CLOSE = {"rtol": 1e-4, "atol": 1e-5}


def logits(model, source, prefix):
    return model(source, source.ne(PAD).sum(1), prefix)[0]


@EVERY_VARIANT
def test_every_parameter_gets_a_gradient(flags):
    model = build_model(**flags)
    source, target = sentences(7, 4, 5), sentences(6, 3, 8, seed=2)
    out = logits(model, source, as_prefix(target))
    F.cross_entropy(out.flatten(0, 1), target.flatten(), ignore_index=PAD).backward()
    assert [name for name, parameter in model.named_parameters() if parameter.grad is None] == []


@EVERY_VARIANT
def test_incremental_decoding_equals_the_full_pass(flags):
    model = build_model(**flags).eval()
    source, target = sentences(7, 4, 5), sentences(60, 33, 80, seed=2)
    prefix = as_prefix(target)
    encoder_out = model.encoder(source)
    whole, _ = model.decoder(prefix, encoder_out=encoder_out)
    stepped = step_by_step(model, prefix, encoder_out)
    real = prefix.ne(PAD)
    torch.testing.assert_close(stepped[real], whole[real], **CLOSE)


def padded_inside(batch):
    """Two columns of padding among those of the ``batch``, and one before the first word."""
    pad = torch.full((len(batch), 1), PAD)
    return torch.cat([pad, batch[:, :1], pad, batch[:, 1:2], pad, batch[:, 2:]], dim=1)


PADDINGS = {
    "right": lambda source, prefix: (source, prefix),
    "left": lambda source, prefix: (sentences(3, 9, 5, left=True), prefix),
    "inside": lambda source, prefix: (padded_inside(source), padded_inside(prefix)),
}


@EVERY_VARIANT
@pytest.mark.parametrize("pad", PADDINGS.values(), ids=PADDINGS)
def test_a_sentence_has_the_same_logits_alone_and_in_a_batch(flags, pad):
    model = build_model(**flags).eval()
    source, prefix = pad(sentences(3, 9, 5), as_prefix(sentences(4, 6, 2, seed=2)))
    together = logits(model, source, prefix)
    for row, length in enumerate((3, 9, 5)):
        own_source = source[row : row + 1][:, source[row].ne(PAD)]
        own_prefix = prefix[row : row + 1][:, prefix[row].ne(PAD)]
        assert own_source.shape[1] == length
        alone = logits(model, own_source, own_prefix)
        torch.testing.assert_close(together[row : row + 1][:, prefix[row].ne(PAD)], alone, **CLOSE)


@EVERY_VARIANT
def test_no_position_sees_a_later_target_word(flags):
    model = build_model(**flags).eval()
    source, prefix = sentences(7, 4), as_prefix(sentences(90, 90, seed=2))
    changed = prefix.clone()
    changed[:, 50:] = as_prefix(sentences(90, 90, seed=3))[:, 50:]
    before, after = logits(model, source, prefix), logits(model, source, changed)
    assert before[:, :50].equal(after[:, :50])
    assert (before[:, 50:] - after[:, 50:]).abs().max() > 1e-3


@EVERY_VARIANT
def test_a_sentence_of_padding_alone_gives_finite_numbers(flags):
    source = sentences(7, 4)
    source[1] = PAD
    assert logits(build_model(**flags).eval(), source, as_prefix(sentences(6, 6, seed=2))).isfinite().all()


@EVERY_FAMILY
@settings(max_examples=10, deadline=None)
@given(
    order=st.lists(st.integers(0, 2), min_size=1, max_size=6),
    when=st.integers(1, 7),
    hiddens=st.booleans(),
)
def test_beams_may_be_reordered_doubled_and_dropped(family, order, when, hiddens):
    # If the number of rows is unchanged, what depends on the source is not reordered, neither here nor in fairseq's
    # attention to the source: in beam search the rows then belong to the same sentences.
    assume(len(order) != 3)
    model = build_model(family).eval()
    source, prefix = sentences(7, 4, 5), as_prefix(sentences(9, 9, 9, seed=2))
    encoder_out = model.encoder(source, return_all_hiddens=hiddens)
    expected, _ = model.decoder(prefix, encoder_out=encoder_out)
    rows, state = torch.tensor(order), {}
    for t in range(when):
        model.decoder(prefix[:, : t + 1], encoder_out=encoder_out, incremental_state=state)
    model.decoder.reorder_incremental_state_scripting(state, rows)
    encoder_out = model.encoder.reorder_encoder_out(encoder_out, rows)
    for t in range(when, 9):
        step, _ = model.decoder(prefix[rows, : t + 1], encoder_out=encoder_out, incremental_state=state)
        torch.testing.assert_close(step[:, 0], expected[rows, t], **CLOSE)


@EVERY_FAMILY
@pytest.mark.parametrize(("dtype", "bound"), [(torch.bfloat16, 0.1), (torch.float16, 0.02)], ids=["bf16", "fp16"])
def test_half_precision_stays_near_fp32(family, dtype, bound):
    model = build_model(family).eval()
    source, target = sentences(30, 20, 25), sentences(40, 33, 50, seed=2)
    prefix = as_prefix(target)
    expected = logits(model, source, prefix).detach()
    half = build_model(family).eval().to(dtype)
    out = logits(half, source, prefix)
    assert (out.float() - expected).abs().max() < bound * expected.abs().max()
    stepped = step_by_step(half, prefix, half.encoder(source))
    assert (stepped.float() - expected)[prefix.ne(PAD)].abs().max() < bound * expected.abs().max()
    F.cross_entropy(out.float().flatten(0, 1), target.flatten(), ignore_index=PAD).backward()
    assert all(torch.isfinite(p.grad).all() for p in half.parameters())


@EVERY_FAMILY
def test_sentences_of_one_word_and_of_many(family):
    model = build_model(family).eval()
    out = logits(model, sentences(1, 40), as_prefix(sentences(1, 30, seed=2)))
    assert torch.isfinite(out).all()


@EVERY_FAMILY
def test_dropout_and_layer_drop_act_only_in_training(family):
    rates = {"dropout": 0.2, "attention_dropout": 0.2, "activation_dropout": 0.2}
    model = build_model(family, encoder_layerdrop=0.5, decoder_layerdrop=0.5, **rates)
    source, prefix = sentences(7, 4), as_prefix(sentences(6, 3, seed=2))
    assert (logits(model, source, prefix) - logits(model, source, prefix)).abs().max() > 1e-3
    model.eval()
    assert logits(model, source, prefix).equal(logits(model, source, prefix))


@EVERY_FAMILY
def test_attention_to_the_source_is_a_distribution_over_real_source_words(family):
    model = build_model(family).eval()
    source, prefix = sentences(7, 4), as_prefix(sentences(6, 6, seed=2))
    encoder_out = model.encoder(source)
    _, extra = model.decoder(prefix, encoder_out=encoder_out)
    assert extra["attn"] == [None]
    model.decoder.make_generation_fast_(name="decoder", need_attn="soft")
    _, extra = model.decoder(prefix, encoder_out=encoder_out)
    attention = extra["attn"][0]
    assert attention.shape == (2, 6, 7)
    torch.testing.assert_close(attention.sum(-1), torch.ones(2, 6))
    assert attention[1, :, 4:].abs().max() == 0
    state, steps = {}, []
    for t in range(6):
        _, extra = model.decoder(prefix[:, : t + 1], encoder_out=encoder_out, incremental_state=state)
        steps.append(extra["attn"][0])
    torch.testing.assert_close(torch.cat(steps, dim=1), attention, **CLOSE)


@EVERY_FAMILY
def test_alignment_of_a_chosen_layer_and_of_some_heads(family):
    model = build_model(family).eval()
    source, prefix = sentences(7, 4), as_prefix(sentences(6, 6, seed=2))
    encoder_out = model.encoder(source)
    chosen = [
        model.decoder(prefix, encoder_out=encoder_out, alignment_layer=layer, alignment_heads=heads)[1]["attn"][0]
        for layer, heads in ((0, None), (1, None), (1, 1))
    ]
    assert all((a - b).abs().max() > 1e-6 for a, b in pairwise(chosen))


@EVERY_VARIANT
def test_alignment_requested_first_at_a_later_step_after_a_sentence_is_finished(flags):
    if flags.get("no_cross_attention"):
        pytest.skip("no attention to the source")
    model = build_model(**flags).eval()
    source, prefix = sentences(7, 4), as_prefix(sentences(6, 6, seed=2))
    whole, unfinished = model.encoder(source), torch.tensor([2, 3])
    beams = model.encoder.reorder_encoder_out(whole, torch.tensor([0, 0, 1, 1]))
    encoder_out = model.encoder.reorder_encoder_out(beams, unfinished)
    logits, _ = model.decoder(prefix, encoder_out=whole)
    for layer in (0, 1):
        expected = model.decoder(prefix, encoder_out=whole, alignment_layer=layer)[1]["attn"][0]
        state = {}
        model.decoder(prefix[[0, 0, 1, 1], :1], encoder_out=beams, incremental_state=state)
        model.decoder.reorder_incremental_state_scripting(state, unfinished)
        for t in (2, 3):
            _, extra = model.decoder(
                prefix[[1, 1], :t], encoder_out=encoder_out, incremental_state=state, alignment_layer=layer
            )
            torch.testing.assert_close(extra["attn"][0][:, 0], expected[[1, 1], t - 1], **CLOSE)
        after, _ = model.decoder(prefix[[1, 1], :4], encoder_out=encoder_out, incremental_state=state)
        torch.testing.assert_close(after[:, 0], logits[[1, 1], 3], **CLOSE)


@EVERY_FAMILY
def test_full_context_alignment_is_refused(family):
    model = build_model(family)
    prefix = as_prefix(sentences(6, seed=2))
    with pytest.raises(ValueError, match="full_context_alignment"):
        model.decoder(prefix, encoder_out=model.encoder(sentences(4)), full_context_alignment=True)


@EVERY_FAMILY
def test_learns_to_copy(family):
    model = build_model(family, words=10)
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    for step in range(300):
        source = sentences(*[6] * 32, words=10, seed=step)
        out = logits(model, source, as_prefix(source))
        loss = F.cross_entropy(out.flatten(0, 1), source.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert loss.item() < 0.5
