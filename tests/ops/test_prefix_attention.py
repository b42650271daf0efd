import pytest
import torch

from every_op import OPS
from fairseq_luna.ops.prefix_attention import recurrent
from numeric import mixed_padding

OP = OPS["prefix-attention"]


def test_the_state_of_a_whole_sequence_is_that_after_its_steps():
    inputs, mask = OP.make(), mixed_padding(40)
    _, state = OP.step(inputs, OP.start(inputs), mask)
    torch.testing.assert_close(tuple(recurrent.prefix_mean_of(*inputs[1:], padding_mask=mask)), tuple(state))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=["fp32", "bf16", "fp16"])
def test_a_mean_of_100000_steps_and_one_more_are_exact(dtype):
    """Their sum is above the range of fp16."""
    k = torch.full((1, 1, 100_000, 2), 20, dtype=dtype)
    state = recurrent.prefix_mean_of(k, k)
    after = recurrent.advance(k[:, :, :1].to(state.mean.dtype), k[:, :, :1], state)
    for mean in (state.mean, after.mean):
        torch.testing.assert_close(mean, torch.full((1, 1, 2, 2), 400.0), rtol=1e-5, atol=0)
    assert after.steps.item() == 100_001
