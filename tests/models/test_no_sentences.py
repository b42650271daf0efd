"""Models for batches that are empty; fairseq's sinusoidal positions, which are not ours, refuse them."""

import pytest
import torch

from models.test_correctness_bar import EVERY_VARIANT
from support import PAD, build_model

LEARNED = {"encoder_learned_pos": True, "decoder_learned_pos": True}
# Sentences, steps of the source and of the target.
SIZES = [(0, 5, 4), (2, 0, 4), (2, 5, 0), (0, 0, 0)]


def words(sentences, steps):
    return torch.full((sentences, steps), 5)


@EVERY_VARIANT
@pytest.mark.parametrize(("batch", "source_steps", "steps"), SIZES)
def test_a_training_step_has_logits_of_its_size(flags, batch, source_steps, steps):
    model, source = build_model(**flags | LEARNED), words(batch, source_steps)
    out, _ = model(source, source.ne(PAD).sum(1), words(batch, steps))
    assert out.shape[:2] == (batch, steps) and out.isfinite().all()
    out.sum().backward()
    assert all(x.grad is None or x.grad.isfinite().all() for x in model.parameters())


@EVERY_VARIANT
@pytest.mark.parametrize("batch", [2, 0])
@torch.no_grad()
def test_decoding_goes_on_until_no_row_is_left(flags, batch):
    model, state = build_model(**flags | LEARNED).eval(), {}
    encoder_out = model.encoder(words(batch, 5))
    for step, order in enumerate((torch.arange(batch), torch.arange(0), torch.arange(0))):
        out, _ = model.decoder(words(batch, step + 1), encoder_out=encoder_out, incremental_state=state)
        assert out.shape[:2] == (batch, 1)
        model.decoder.reorder_incremental_state_scripting(state, order)
        encoder_out, batch = model.encoder.reorder_encoder_out(encoder_out, order), len(order)
