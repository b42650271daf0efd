import pytest
import torch

from fairseq_luna.ops import linear_recurrence as op
from numeric import assert_same_function, randn


@pytest.mark.parametrize("steps", [*range(1, 12), 33, 64, 65, 131])
def test_any_number_of_steps_is_joined_in_pairs(steps, monkeypatch):
    monkeypatch.setattr(op, "LOOPED", 2)
    f, b = randn(steps, 2, 3, seed=1, grad=False).sigmoid().requires_grad_(), randn(steps, 2, 3)
    assert_same_function(op.linear_recurrence(f, b), op.linear_recurrence_reference(f, b), [f, b])


@pytest.mark.parametrize("factor", [0.0, 1e-30, 1.0])
def test_products_of_factors_may_underflow(factor):
    f, b = torch.full((300, 1, 4), factor, requires_grad=True), torch.ones(300, 1, 4, requires_grad=True)
    h = op.linear_recurrence(f, b)
    expected = torch.arange(1.0, 301) if factor == 1 else torch.ones(300)
    torch.testing.assert_close(h, expected[:, None, None].expand_as(h), rtol=0, atol=0)
    assert all(x.isfinite().all() for x in torch.autograd.grad(h.sum(), [f, b]))


def test_equal_inputs_stay_exact_for_100000_steps():
    f = torch.rand(100_000, 1, 2, generator=torch.Generator().manual_seed(0))
    f[::1000] = 1 - 1e-6
    mean = op.linear_recurrence(f, (1 - f) * 3.0)[-1]
    state = None
    for factor, b in zip(f.split(1), ((1 - f) * 3.0).split(1), strict=True):
        _, state = op.linear_recurrence_step(factor, b, state)
    torch.testing.assert_close((mean, state.h), (torch.full((1, 2), 3.0),) * 2, rtol=1e-6, atol=0)
