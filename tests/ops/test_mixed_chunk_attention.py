import pytest
import torch

from every_op import OPS


def of_chunks(size, causal=True):
    """The op with chunks of this size, and the size of its bias."""
    op = OPS["mixed-chunks-7-causal" if causal else "mixed-chunks-7"]
    options = {**op.options, "chunk_size": size}
    return op._replace(options=options, sizes={"J": size if causal else 2 * size - 1})


@pytest.mark.parametrize("form", ["naive", "fast"])
@torch.no_grad()
def test_a_step_is_the_sum_of_the_formula(form):
    """Step 9 of chunks of 4: 8 and 9 in its chunk, and the mean over 0 to 7."""
    op = of_chunks(4)
    q, k, far_q, far_k, v, bias = inputs = op.make(T=12)
    out = op(form, inputs)[0][0, 0, 9]
    near = sum(((q[0, 0, 9] @ k[0, 0, j]) / 4 + bias[9 - j]).relu() ** 2 * v[0, 0, j] for j in (8, 9))
    far = sum((far_q[0, 0, 9] @ far_k[0, 0, j]) * v[0, 0, j] for j in range(8)) / 8
    torch.testing.assert_close(out, near + far)


@pytest.mark.parametrize("causal", [False, True], ids=["bidirectional", "causal"])
@torch.no_grad()
def test_a_square_does_not_overflow_half_precision(causal):
    """Where a score is 400, its square is above the range of fp16; the sum with such values is not."""
    op = of_chunks(3, causal)
    q, k, far_q, far_k, v, bias = op.make(torch.empty(0, dtype=torch.float16), T=6)
    q, k, v, bias = torch.full_like(q, 20), torch.full_like(k, 10), torch.full_like(v, 1e-2), torch.zeros_like(bias)
    [out] = op("fast", [q, k, 0 * far_q, far_k, v, bias])
    expected = 400.0**2 * 0.01 * (torch.tensor([1.0, 2, 3, 1, 2, 3]) if causal else 3)
    torch.testing.assert_close(out[0, 0, :, 0].float(), expected * torch.ones(6), rtol=2e-3, atol=0)
