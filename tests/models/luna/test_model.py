"""Features that only Luna's encoder-decoder has."""

import pytest
import torch
from fairseq.modules import MultiheadAttention

from fairseq_luna.models.luna.decoder import LunaDecoder
from support import PAD, as_prefix, build_luna, sentences

CLOSE = {"rtol": 1e-4, "atol": 1e-5}


@pytest.mark.parametrize("flags", [{}, {"fix_projection_length": True}], ids=["dynamic", "fixed-length"])
def test_reorder_encoder_out_moves_every_tensor_and_keeps_the_original(flags):
    model = build_luna(**flags).eval()
    source = sentences(7, 4, 5)
    before = model.encoder(source, return_all_hiddens=True)
    states = list(before["encoder_states"])
    after = model.encoder.reorder_encoder_out(before, torch.tensor([2, 0]))
    expected = model.encoder(source[[2, 0]], return_all_hiddens=True)
    assert len(states) == 3
    for name in ("encoder_out", "packed_out", "packed_padding_mask", "encoder_padding_mask", "encoder_states"):
        assert len(after[name]) == len(expected[name])
        for ours, theirs in zip(after[name], expected[name], strict=True):
            torch.testing.assert_close(ours, theirs, **CLOSE)
    assert all(x is y for x, y in zip(states, before["encoder_states"], strict=True))


def test_a_sentence_that_is_all_padding_is_finite():
    model = build_luna().eval()
    source = sentences(40, 40)
    source[1] = PAD
    out, _ = model(source, None, as_prefix(sentences(30, 2, seed=2)))
    assert torch.isfinite(out).all()


def test_softmax_source_attention_reads_each_word_and_no_padding():
    model = build_luna(luna_source_attention="softmax").eval()
    assert all(isinstance(layer.encoder_attn, MultiheadAttention) for layer in model.decoder.layers)
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
