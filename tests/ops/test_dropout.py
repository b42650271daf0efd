import pytest
import torch

from fairseq_luna.ops.dropout import add_dropped
from numeric import EVERY_DTYPE


@pytest.mark.parametrize("p", [0.0, 0.001, 0.1, 0.5, 1.0])
@EVERY_DTYPE
def test_an_element_is_dropped_or_scaled(p, dtype):
    torch.manual_seed(0)
    residual = torch.full((200, 300), 2.0, dtype=dtype)
    x = torch.ones(200, 300, dtype=dtype, requires_grad=True)
    out = add_dropped(residual, x, p)
    assert out.dtype == dtype
    # The sum is rounded once, the gradient is the rounded scale.
    scale = torch.tensor(0.0 if p == 1 else 1 / (1 - p), dtype=torch.promote_types(dtype, torch.float32))
    kept = out != 2
    assert out[kept].eq((2 + scale).to(dtype)).all()
    # Within six standard deviations for 60,000 elements.
    assert abs(kept.double().mean().item() - (1 - p)) <= 6 * (p * (1 - p) / 60_000) ** 0.5
    out.sum().backward()
    assert x.grad.equal(kept * scale.to(dtype))


def test_half_precision_drops_with_the_given_probability():
    """Uniform numbers in bf16 are too coarse for a probability of 1/1000."""
    torch.manual_seed(0)
    x, p = torch.ones(1000, 1000, dtype=torch.bfloat16), 0.001
    dropped = add_dropped(torch.zeros_like(x), x, p).eq(0).double().mean().item()
    assert abs(dropped - p) <= 6 * (p * (1 - p) / 1e6) ** 0.5
