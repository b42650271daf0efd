"""Features that only Luna's encoder-decoder has."""

import pytest
import torch

from fairseq_luna.models.luna.decoder import LunaDecoder
from fairseq_luna.models.shared.source_rows import selected_rows
from support import CLOSE, as_prefix, build_luna, sentences


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
