import pytest
import torch

from every_op import OPS
from fairseq_luna.ops.prefix_attention import PrefixMean, prefix_attention, prefix_mean_of, update_prefix_mean
from numeric import mixed_padding

OP = OPS["prefix-attention"]


def test_the_state_of_a_whole_sequence_is_that_after_its_steps():
    inputs, mask = OP.make(), mixed_padding(40)
    *_, (_, state) = OP.in_steps(inputs, mask)
    torch.testing.assert_close(tuple(prefix_mean_of(*inputs[1:], padding=mask)), tuple(state))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=["fp32", "bf16", "fp16"])
def test_precision_after_100000_steps(dtype):
    # All products are positive and far from zero, so that a sum would grow linearly.
    q, k, v = ((x.detach().abs() * 20).to(dtype) for x in OP.make(B=1, H=1, T=100_000, D=4))
    expected = prefix_attention(q.double(), k.double(), v.double())
    actual = prefix_attention(q, k, v)
    worst = ((actual.double() - expected).abs() / expected.abs()).max()
    assert worst < {torch.float32: 2e-5, torch.bfloat16: 5e-3, torch.float16: 1e-3}[dtype]
    state = prefix_mean_of(k, v)
    before = PrefixMean(state.mean, state.steps - 1)
    after = update_prefix_mean(k[:, :, :1].to(state.mean.dtype), v[:, :, :1], before)
    assert torch.isfinite(after.mean).all()


def test_a_step_is_exact_after_100000_steps():
    mean = torch.full((1, 1, 2, 2), 3.0)
    state = PrefixMean(mean, torch.tensor([100_000.0]))
    one = torch.ones(1, 1, 1, 2)
    after = update_prefix_mean(one * 3, one, state)
    torch.testing.assert_close(after.mean, mean)
    assert after.steps.item() == 100_001
