"""Features that only Luna's encoder-decoder has."""

import pytest
import torch

from fairseq_luna.models.luna.decoder import LunaDecoder
from fairseq_luna.models.transformer.source_rows import selected_rows
from fairseq_luna.modules import SoftmaxSourceAttention
from support import PAD, as_prefix, build_luna, sentences

CLOSE = {"rtol": 1e-4, "atol": 1e-5}


@pytest.mark.parametrize("flags", [{}, {"fix_projection_length": True}], ids=["dynamic", "fixed-length"])
def test_rows_of_the_encoders_output_are_selected_when_they_are_read(flags):
    model = build_luna(**flags).eval()
    source = sentences(7, 4, 5)
    before = model.encoder(source)
    kept = dict(before)
    twice = model.encoder.reorder_encoder_out(
        model.encoder.reorder_encoder_out(before, torch.tensor([2, 0, 1, 1])), torch.tensor([3, 1])
    )
    after, expected = selected_rows(twice), selected_rows(model.encoder(source[[1, 0]]))
    for name, tensors in after.items():
        torch.testing.assert_close(tensors, expected[name], **CLOSE)
    assert before == kept


def test_beams_share_the_row_of_their_sentence():
    model = build_luna().eval()
    encoder_out = model.encoder(sentences(7, 4, 5))
    for rows, shared in (
        ([0, 0, 1, 1, 2, 2], True),
        ([0, 1, 2], True),
        ([0, 0, 1], False),
        ([0, 1, 0, 1, 2, 2], False),
    ):
        reordered = model.encoder.reorder_encoder_out(encoder_out, torch.tensor(rows))
        assert (selected_rows(reordered)["encoder_out"][0] is encoder_out["encoder_out"][0]) is shared


@pytest.mark.parametrize("flags", [{}, {"luna_source_attention": "softmax"}, {"cross_self_attention": True}])
@pytest.mark.parametrize("alignment_layer", [-1, 1])
def test_beams_are_selected_and_finish(flags, alignment_layer):
    # As fairseq's generator does: 3 beams of 3 sentences, of which the second finishes after 4 steps.
    model, beams = build_luna(**flags).eval(), 3
    source = sentences(7, 3, 5)
    prefix = as_prefix(sentences(*[8] * 9, seed=2))
    rows = torch.arange(3).repeat_interleave(beams)
    order = torch.arange(9)
    expected, extra = model.decoder(prefix, encoder_out=model.encoder(source[rows]), alignment_layer=alignment_layer)
    encoder_out, state = model.encoder.reorder_encoder_out(model.encoder(source), rows), {}
    chosen = {2: [1, 1, 0, 3, 4, 5, 8, 7, 6], 4: [0, 2, 1, 6, 6, 8]}
    for t in range(8):
        if t in chosen:
            new_order = torch.tensor(chosen[t])
            model.decoder.reorder_incremental_state_scripting(state, new_order)
            encoder_out = model.encoder.reorder_encoder_out(encoder_out, new_order)
            order = order[new_order]
            # The rows' histories differ now, so they are compared with a full pass over their own words.
            prefix = prefix[new_order]
            expected, extra = model.decoder(
                prefix, encoder_out=model.encoder(source[rows[order]]), alignment_layer=alignment_layer
            )
        step, weights = model.decoder(
            prefix[:, : t + 1], encoder_out=encoder_out, incremental_state=state, alignment_layer=alignment_layer
        )
        torch.testing.assert_close(step[:, 0], expected[:, t], **CLOSE)
        if alignment_layer == 1:
            torch.testing.assert_close(weights["attn"][0][:, 0], extra["attn"][0][:, t], **CLOSE)


def test_a_sentence_that_is_all_padding_is_finite():
    model = build_luna().eval()
    source = sentences(40, 40)
    source[1] = PAD
    out, _ = model(source, None, as_prefix(sentences(30, 2, seed=2)))
    assert torch.isfinite(out).all()


def test_softmax_source_attention_reads_each_word_and_no_padding():
    model = build_luna(luna_source_attention="softmax").eval()
    assert all(isinstance(layer.encoder_attn, SoftmaxSourceAttention) for layer in model.decoder.layers)
    source = sentences(7, 4)
    out = model.decoder(as_prefix(sentences(6, 3, seed=2)), encoder_out=model.encoder(source), alignment_layer=0)
    weights = out[1]["attn"][0]
    assert weights.shape == (2, 6, 7)
    torch.testing.assert_close(weights.sum(-1), torch.ones(2, 6))
    assert weights.masked_select(source.eq(PAD)[:, None]).abs().max() == 0


def test_a_decoder_without_attention_to_the_source_does_not_build_it():
    model = build_luna()
    decoder = LunaDecoder(model.cfg, model.decoder.dictionary, model.decoder.embed_tokens, no_encoder_attn=True)
    assert not [name for name in decoder.state_dict() if "encoder_attn" in name]
    out, _ = decoder(as_prefix(sentences(6, 3)), encoder_out=model.encoder(sentences(7, 4)))
    out.sum().backward()
    assert [name for name, parameter in decoder.named_parameters() if parameter.grad is None] == []


def test_a_decoder_alone_is_refused():
    with pytest.raises(ValueError, match="encoder_out is needed"):
        build_luna().decoder(as_prefix(sentences(6)))


def test_word_dropout_acts_only_in_training():
    model = build_luna(word_dropout=0.5)
    source, prefix = sentences(7, 4), as_prefix(sentences(6, 3, seed=2))
    assert (model(source, None, prefix)[0] - model(source, None, prefix)[0]).abs().max() > 1e-3
    model.eval()
    assert model(source, None, prefix)[0].equal(model(source, None, prefix)[0])
