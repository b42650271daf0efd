"""Properties of linear attention that forgets beside the contract of every attention."""

from functools import partial

import pytest
import torch

from every_op import OPS
from fairseq_luna.ops.decay_attention import (
    clamped_exp,
    decay_attention,
    decay_attention_reference,
    decays_between,
    sums_between,
)
from fairseq_luna.ops.gated_delta_rule import gated_delta_rule, gated_delta_rule_reference
from numeric import gradients
from support import golden

OP = OPS["decay-causal"]
NEAR = {"rtol": 2e-4, "atol": 2e-4}
BOTH_DIRECTIONS = pytest.mark.parametrize("causal", [True, False], ids=["causal", "both"])


@BOTH_DIRECTIONS
@pytest.mark.parametrize("decay", [-100.0, -1e4, -1e30])
def test_where_all_is_forgotten_a_step_sees_itself(decay, causal):
    q, k, v, g = (x.detach().float().requires_grad_() for x in OP.make(T=90))
    strong = torch.full_like(g, decay).requires_grad_()
    out = decay_attention(q, k, v, strong, causal=causal)
    torch.testing.assert_close(out, (q * k).sum(-1, keepdim=True) * v)
    assert all(x.isfinite().all() for x in torch.autograd.grad(out.square().sum(), (q, k, v, strong)))


FORGETTING = {
    "causal": (decay_attention, decay_attention_reference),
    "both": (partial(decay_attention, causal=False), partial(decay_attention_reference, causal=False)),
    "delta": (gated_delta_rule, gated_delta_rule_reference),
}


@pytest.mark.parametrize("decay", [-1e3, -1e6, -torch.inf])
@pytest.mark.parametrize("name", FORGETTING)
def test_strong_decays_do_not_blur_what_follows(name, decay):
    """Outputs and gradients keep the digits of fp32 between steps that forget all, within a block and across them."""
    form, naive = FORGETTING[name]
    q, k, v, g = (x.detach() for x in OP.make(B=1, T=600))
    more = [q[..., 0].sigmoid()] if name == "delta" else []
    forgets = torch.rand(600, generator=torch.Generator().manual_seed(0)) < 0.3
    given = [[x.to(dtype).requires_grad_() for x in (q, k, v, g, *more)] for dtype in (torch.float64, torch.float32)]
    strong = (max(decay, -1e6), decay)
    expected, found = (
        function(*x[:3], x[3].masked_fill(forgets, value), *x[4:])
        for function, x, value in zip((naive, form), given, strong, strict=True)
    )
    torch.testing.assert_close(found.double(), expected, **NEAR)
    for ours, theirs in zip(gradients(found, *given[1]), gradients(expected, *given[0]), strict=True):
        torch.testing.assert_close(ours.double() / theirs.abs().max(), theirs / theirs.abs().max(), **NEAR)


def decays_of(kind, like):
    """Decays of each step ``(1, H, T)``: moderate ones, each with half-lives below one step, or a run that forgets."""
    drawn = torch.rand(like.shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    if kind == "strong":
        return -8 * drawn
    return (-0.1 * drawn).index_fill(2, torch.arange(20, 35), -1e3)


@pytest.mark.parametrize("block_length", [2, 64], ids=["blocks-of-2", "blocks-of-64"])
@pytest.mark.parametrize("kind", ["strong", "run"])
@pytest.mark.parametrize("name", FORGETTING)
def test_the_error_is_as_small_as_that_of_the_steps(name, kind, block_length):
    """In fp32 the difference of two running sums of decays would have an error of 2e-6 to 3e-5 here."""
    form, naive = FORGETTING[name]
    q, k, v, g = (x.detach() for x in OP.make(B=1, T=300))
    given = [q, k, v, decays_of(kind, g).float().double(), *([q[..., 0].sigmoid()] if name == "delta" else [])]
    results = []
    for function, dtype in ((naive, torch.float64), (partial(form, block_length=block_length), torch.float32)):
        inputs = [x.float().to(dtype).requires_grad_() for x in given]
        out = function(*inputs)
        results.append([out, *gradients(out, *inputs)])
    for place, (expected, found) in enumerate(zip(*results, strict=True)):
        error = (found.double() - expected).abs().max() / expected.abs().max()
        assert error < (3e-6 if place == 4 else 8e-7), place  # the gradient of the decays is a sum over all steps


@pytest.mark.parametrize("kind", ["strong", "run", "infinite"])
@torch.no_grad()
def test_decays_are_the_same_by_sums_and_on_a_cpu(kind):
    """A GPU and compiled graphs add the decays between two steps, a CPU subtracts in fp64."""
    g = decays_of("strong" if kind == "strong" else "run", OP.make(B=1, T=100)[3].detach())[0, ..., None].float()
    if kind == "infinite":
        g = g.masked_fill(g < -100, -torch.inf)
    expected = torch.stack([g[:, j + 1 : 100].double().sum(1) for j in range(100)], dim=-1)[:, 0].clamp(min=-60).exp()
    for found in (clamped_exp(sums_between(g)), decays_between(g)):
        torch.testing.assert_close(found[:, -1].double(), expected, rtol=1e-5, atol=1e-9)


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
