"""Batches without sentences, sentences without steps, and searches in which none is left."""

import pytest
import torch

from every_attention import SIZE, Kept, build, call, every, inputs

pytestmark = pytest.mark.slow
# Steps, sentences, and steps of the source.
SIZES = {
    "no sentences": (4, 0, 5),
    "no steps": (0, 2, 5),
    "neither": (0, 0, 5),
    "nothing": (0, 0, 0),
    "no source": (4, 2, 0),
    "no sentences and no source": (4, 0, 0),
}
EVERY_SIZE = pytest.mark.parametrize(("steps", "batch", "source_steps"), SIZES.values(), ids=SIZES)
PADDED = pytest.mark.parametrize("padded", [False, True], ids=["without a mask", "with a mask"])


def no_padding(padded, batch, steps):
    return torch.zeros(batch, steps, dtype=torch.bool) if padded else None


@every()
@EVERY_SIZE
def test_the_result_has_the_size_of_its_input(name, place, steps, batch, source_steps):
    module = build(name, place)
    for padded in (False, True):
        module.train().zero_grad()
        x, source = (each.requires_grad_() for each in inputs(module, steps, batch, source_steps))
        mask = no_padding(padded, batch, source_steps if place == "source" else steps)
        out = call(module, place, x, mask, source)
        assert out.shape == x.shape and out.isfinite().all()
        out.sum().backward()
        assert x.grad.shape == x.shape
        of_scores = ("segment_bias", "span")  # of which there are none
        trained = [x.grad for name, x in module.named_parameters() if not name.endswith(of_scores)]
        assert all(gradient is not None and gradient.isfinite().all() for gradient in trained)
        if place == "source":
            _, weights = module.eval()(x, source, source_padding_mask=mask, need_weights=True)
            assert weights.shape[1:] == (batch, steps, source_steps)


@every("decoder", "source")
@pytest.mark.parametrize("source_steps", [5, 0])
@pytest.mark.parametrize("batch", [2, 0])
@pytest.mark.parametrize("beams", [1, 2])
@PADDED
@torch.no_grad()
def test_generation_goes_on_until_no_row_is_left(name, place, batch, source_steps, beams, padded):
    module, kept = build(name, place), Kept()
    _, source = inputs(module, 1, batch, source_steps)
    rows = batch * beams
    for step, order in enumerate((torch.arange(rows), torch.arange(0), torch.arange(0))):
        x = torch.randn(1, rows, SIZE)
        mask = no_padding(padded, batch, source_steps) if place == "source" else no_padding(padded, rows, 1)
        out = call(module, place, x, mask, source, kept=kept)
        assert out.shape == x.shape and out.isfinite().all()
        kept.reorder(order if place == "decoder" or step else torch.arange(batch))
        rows = len(order)
        if place == "source" and not rows:
            kept.reorder(order)
            kept.padding = kept.padding.rows(order)
