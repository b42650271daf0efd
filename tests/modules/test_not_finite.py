"""How far a number that is not finite spreads. Within its sentence it may spread as in torch's own attention."""

import pytest
import torch

from every_attention import build, call, every, inputs

STEPS, BATCH = 40, 3
NOT_FINITE = pytest.mark.parametrize("number", [torch.nan, torch.inf])


@every()
@NOT_FINITE
@pytest.mark.parametrize("padded", [False, True], ids=["whole", "padded"])
def test_it_stays_in_its_sentence(name, place, number, padded):
    module, mask = build(name, place).train(), None
    x, source = inputs(module, STEPS, BATCH)
    if padded:
        mask = torch.zeros(BATCH, STEPS, dtype=torch.bool)
        mask[:, 9:15] = True
    expected = call(module, place, x, mask, source)[:, 1:]
    (source if place == "source" else x)[5, 0] = number
    x.requires_grad_()
    out = call(module, place, x, mask, source)[:, 1:]
    torch.testing.assert_close(out, expected)
    out.sum().backward()
    assert x.grad[:, 1:].isfinite().all()
