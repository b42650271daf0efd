"""Whole encoder-decoders: every family with each of its flags, and every attention by name.

tests/test_devices.py sees that every parameter gets a gradient.
"""

import pytest
import torch
import torch.nn.functional as F

from fairseq_luna.models.mixed.chosen_attentions import ATTENTIONS, fields_for
from support import CLOSE, PAD, as_prefix, build_model, sentences, step_by_step
from variants import FAMILIES, VARIANTS

EVERY_VARIANT = pytest.mark.parametrize("flags", VARIANTS.values(), ids=VARIANTS.keys())
EVERY_FAMILY = pytest.mark.parametrize("family", FAMILIES)
ALIGNED = ["luna-tied", "luna-softmax-source", "fastformer-default", "block-default", "mixed-softmax"]


def logits(model, source, prefix):
    return model(source, source.ne(PAD).sum(1), prefix)[0]


@EVERY_VARIANT
def test_incremental_decoding_equals_the_full_pass(flags):
    """So no position sees a later word."""
    model = build_model(**flags).eval()
    source, target = sentences(7, 4, 5), sentences(60, 33, 80, seed=2)
    prefix = as_prefix(target)
    encoder_out = model.encoder(source)
    whole, _ = model.decoder(prefix, encoder_out=encoder_out)
    stepped = step_by_step(model, prefix, encoder_out)
    real = prefix.ne(PAD)
    torch.testing.assert_close(stepped[real], whole[real], **CLOSE)


LENGTHS = (1, 40, 5)


@EVERY_FAMILY
def test_the_encoder_returns_a_mask_only_if_something_is_padded(family):
    encoder = build_model(family=family).encoder
    masks = [encoder(batch)["encoder_padding_mask"] for batch in (sentences(9, 9), sentences(9, 4))]
    assert [len(mask) for mask in masks] == [0, 1]


def padded_inside(batch):
    """Two columns of padding among those of the ``batch``, and one before the first word."""
    pad = torch.full((len(batch), 1), PAD)
    return torch.cat([pad, batch[:, :1], pad, batch[:, 1:2], pad, batch[:, 2:]], dim=1)


PADDINGS = {
    "right": lambda source, prefix: (source, prefix),
    "left": lambda source, prefix: (sentences(*LENGTHS, left=True), prefix),
    "inside": lambda source, prefix: (padded_inside(source), padded_inside(prefix)),
}


@EVERY_VARIANT
@pytest.mark.parametrize("pad", PADDINGS.values(), ids=PADDINGS)
def test_a_sentence_has_the_same_logits_alone_and_in_a_batch(flags, pad):
    model = build_model(**flags).eval()
    source, prefix = pad(sentences(*LENGTHS), as_prefix(sentences(30, 6, 2, seed=2)))
    together = logits(model, source, prefix)
    for row, length in enumerate(LENGTHS):
        own_source = source[row : row + 1][:, source[row].ne(PAD)]
        own_prefix = prefix[row : row + 1][:, prefix[row].ne(PAD)]
        assert own_source.shape[1] == length
        alone = logits(model, own_source, own_prefix)
        torch.testing.assert_close(together[row : row + 1][:, prefix[row].ne(PAD)], alone, **CLOSE)


@EVERY_VARIANT
def test_a_sentence_of_padding_alone_is_finite_and_changes_no_other(flags):
    model, source, prefix = build_model(**flags).eval(), sentences(7, 4), as_prefix(sentences(6, 6, seed=2))
    source[1] = PAD
    out = logits(model, source, prefix)
    assert out.isfinite().all()
    torch.testing.assert_close(out[:1], logits(model, source[:1], prefix[:1]), **CLOSE)


# The sentences of the rows at the beginning, and the rows that later steps go on with. Of a search with two beams for
# each sentence: they change places, are doubled, and two sentences end, one after the other. And rows in any order.
SEARCHES = {
    "beams": ([0, 0, 1, 1, 2, 2], {2: [1, 0, 2, 2, 5, 4], 3: [1, 0, 5, 4], 5: [0, 0, 3, 2], 6: [3, 2]}),
    "rows": ([0, 1, 2], {2: [2, 0, 0, 1], 5: [3, 1]}),
}


@EVERY_VARIANT
@pytest.mark.parametrize(("begun", "chosen"), SEARCHES.values(), ids=SEARCHES)
@torch.no_grad()
def test_rows_are_reordered_doubled_and_dropped(flags, begun, chosen):
    model, rows, state = build_model(**flags).eval(), torch.tensor(begun), {}
    source, prefix = sentences(7, 4, 5), as_prefix(sentences(*[9] * len(begun), seed=2))
    encoder_out = model.encoder(source, return_all_hiddens=len(begun) > 3)
    encoder_out, source = model.encoder.reorder_encoder_out(encoder_out, rows), source[rows]
    for t in range(8):
        if t in chosen:
            rows = torch.tensor(chosen[t])
            model.decoder.reorder_incremental_state_scripting(state, rows)
            encoder_out = model.encoder.reorder_encoder_out(encoder_out, rows)
            source, prefix = source[rows], prefix[rows]
        step, _ = model.decoder(prefix[:, : t + 1], encoder_out=encoder_out, incremental_state=state)
        torch.testing.assert_close(step[:, 0], logits(model, source, prefix)[:, t], **CLOSE)


@EVERY_FAMILY
@pytest.mark.parametrize(("dtype", "bound"), [(torch.bfloat16, 0.1), (torch.float16, 0.02)], ids=["bf16", "fp16"])
def test_half_precision_stays_near_fp32(family, dtype, bound):
    model = build_model(family).eval()
    source, target = sentences(30, 1, 25), sentences(40, 1, 50, seed=2)
    prefix = as_prefix(target)
    expected = logits(model, source, prefix).detach()
    half = build_model(family).eval().to(dtype)
    out = logits(half, source, prefix)
    assert (out.float() - expected).abs().max() < bound * expected.abs().max()
    stepped = step_by_step(half, prefix, half.encoder(source))
    assert (stepped.float() - expected)[prefix.ne(PAD)].abs().max() < bound * expected.abs().max()
    F.cross_entropy(out.float().flatten(0, 1), target.flatten(), ignore_index=PAD).backward()
    assert all(torch.isfinite(p.grad).all() for p in half.parameters())


RATES = {"dropout": 0.2, "attention_dropout": 0.2, "activation_dropout": 0.2}
RATES |= {"encoder_layerdrop": 0.5, "decoder_layerdrop": 0.5}


@pytest.mark.parametrize(
    ("family", "rates"), [*((family, RATES) for family in FAMILIES), ("luna", {"word_dropout": 0.5})]
)
def test_dropout_and_layer_drop_act_only_in_training(family, rates):
    model = build_model(family, **rates)
    source, prefix = sentences(7, 4), as_prefix(sentences(6, 3, seed=2))
    assert (logits(model, source, prefix) - logits(model, source, prefix)).abs().max() > 1e-3
    model.eval()
    assert logits(model, source, prefix).equal(logits(model, source, prefix))


@pytest.mark.parametrize("variant", ALIGNED)
def test_attention_to_the_source_is_a_distribution_over_real_source_words(variant):
    model = build_model(**VARIANTS[variant]).eval()
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


@pytest.mark.parametrize("name", ATTENTIONS)
def test_checkpointed_activations_change_no_gradient(name):
    found = []
    for checkpointed in (False, True):
        flags = {"dropout": 0.1, "attention_dropout": 0.1, "checkpoint_activations": checkpointed}
        model = build_model("mixed", **fields_for(name), **flags)
        torch.manual_seed(1)
        model(sentences(7, 4), None, as_prefix(sentences(6, 3, seed=2)))[0].logsumexp(-1).sum().backward()
        found.append({parameter: tensor.grad for parameter, tensor in model.named_parameters()})
    torch.testing.assert_close(found[1], found[0], **CLOSE)


# fairseq's sinusoidal positions, which are not ours, refuse empty batches.
LEARNED = {"encoder_learned_pos": True, "decoder_learned_pos": True}


def words(batch, steps):
    return torch.full((batch, steps), 5)


@EVERY_FAMILY
@pytest.mark.parametrize(("batch", "source_steps", "steps"), [(0, 5, 4), (2, 0, 4), (2, 5, 0), (0, 0, 0)])
def test_a_training_step_without_sentences_or_words(family, batch, source_steps, steps):
    model = build_model(family, **LEARNED)
    out = logits(model, words(batch, source_steps), words(batch, steps))
    assert out.shape[:2] == (batch, steps) and out.isfinite().all()
    out.sum().backward()
    assert all(x.grad is None or x.grad.isfinite().all() for x in model.parameters())


@EVERY_FAMILY
@pytest.mark.parametrize("batch", [2, 0])
@torch.no_grad()
def test_decoding_goes_on_until_no_row_is_left(family, batch):
    model, state = build_model(family, **LEARNED).eval(), {}
    encoder_out = model.encoder(words(batch, 5))
    for step, order in enumerate((torch.arange(batch), torch.arange(0), torch.arange(0))):
        out, _ = model.decoder(words(batch, step + 1), encoder_out=encoder_out, incremental_state=state)
        assert out.shape[:2] == (batch, 1)
        model.decoder.reorder_incremental_state_scripting(state, order)
        encoder_out, batch = model.encoder.reorder_encoder_out(encoder_out, order), len(order)
