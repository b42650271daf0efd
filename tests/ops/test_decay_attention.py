"""What linear attention that forgets has beside the contract of every attention."""

import pytest
import torch

from every_op import OPS
from fairseq_luna.ops.decay_attention import decay_attention
from support import golden

OP = OPS["decay-causal"]
BOTH_DIRECTIONS = pytest.mark.parametrize("causal", [True, False], ids=["causal", "both"])


@BOTH_DIRECTIONS
@pytest.mark.parametrize("decay", [-100.0, -1e4, -1e30])
def test_where_all_is_forgotten_a_step_sees_itself(decay, causal):
    q, k, v, g = (x.detach().float().requires_grad_() for x in OP.make(T=90))
    strong = torch.full_like(g, decay).requires_grad_()
    out = decay_attention(q, k, v, strong, causal=causal)
    torch.testing.assert_close(out, (q * k).sum(-1, keepdim=True) * v)
    assert all(x.isfinite().all() for x in torch.autograd.grad(out.square().sum(), (q, k, v, strong)))


def test_one_strong_decay_does_not_blur_what_follows():
    q, k, v, g = (x.detach() for x in OP.make(B=1, T=60))
    g[:, :, 20] = -1000
    expected = decay_attention(q, k, v, g)
    found = decay_attention(*(x.float() for x in (q, k, v, g)))
    torch.testing.assert_close(found.double(), expected, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("kept", [0.9, 0.99999], ids=str)
@torch.no_grad()
def test_the_sums_of_100000_equal_steps_are_geometric(kept):
    q = torch.ones(1, 1, 100_000, 2)
    decay = torch.tensor(kept, dtype=torch.float64).log()
    found = decay_attention(q / 2, q, q, decay.expand(1).float())
    expected = (1 - (decay * torch.arange(1, 100_001)).exp()) / (1 - kept)
    torch.testing.assert_close(found[0, 0, :, 0].double(), expected, rtol=3e-5, atol=0)


def test_equals_the_published_retention():
    recorded = golden("retention.pt")["op"]
    inputs = [recorded[name].clone().requires_grad_() for name in "qkv"]
    q, k, v = inputs
    decay = torch.tensor([1 - 2 ** (-5 - head) for head in range(q.shape[1])]).log()[None, :, None]
    out = decay_attention(q * q.shape[-1] ** -0.5, k, v, decay)
    torch.testing.assert_close(out, recorded["output"])
    found = torch.autograd.grad(out, inputs, recorded["grad_output"])
    torch.testing.assert_close(found, tuple(recorded[f"grad_{name}"] for name in "qkv"))
