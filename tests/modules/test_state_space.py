"""Properties of Mamba-2's mixer beside the contract of every attention."""

import math
from functools import partial

import pytest
import torch
import torch.nn.functional as F

from fairseq_luna.modules import StateSpaceAttention
from fairseq_luna.ops.decay_attention import decay_attention, decay_attention_reference, decay_attention_step
from numeric import sequences
from support import CLOSE, assert_published, golden


def named(theirs):
    """The published mixer's tensors under our names: its convolution has a channel of input."""
    return {name: x.squeeze(1) if name == "conv1d.weight" else x for name, x in theirs.items()}


def test_equals_the_published_mixer():
    """With words before which there is padding: there the published one is right too."""
    recorded = golden("ssd.pt")
    module = StateSpaceAttention(causal=True, **recorded["settings"], bias=False)
    module.load_state_dict(named(recorded["parameters"]))
    assert_published(module, recorded, named(recorded["grads"]), recorded["padding_mask"])


@pytest.mark.parametrize("form", [decay_attention_reference, decay_attention], ids=["naive", "chunked"])
def test_the_recurrence_equals_the_authors(form):
    """Their minimal form of it, and the state that it leaves."""
    recorded = golden("ssd.pt")["scan"]
    given = [recorded[name].clone().requires_grad_() for name in "CBXA"]
    q, k, v, g = (x.transpose(1, 2) for x in given)
    q, k = (x.expand(-1, v.shape[1], -1, -1) for x in (q, k))
    out = form(q, k, v, g).transpose(1, 2)
    torch.testing.assert_close(out, recorded["Y"], **CLOSE)
    own = torch.autograd.grad(out, given, recorded["grad_Y"])
    torch.testing.assert_close(own, tuple(recorded["grads"][name] for name in "CBXA"), **CLOSE)
    state = None
    for step in zip(*(x.split(1, dim=2) for x in (q, k, v, g)), strict=True):
        _, state = decay_attention_step(*step, state)
    torch.testing.assert_close(state.sum.mT, recorded["final_state"], **CLOSE)


@torch.no_grad()
def test_in_an_encoder_a_step_reads_the_others_by_the_decay_between_them():
    """The formula, step by step, after a convolution of three steps on each side."""
    torch.manual_seed(0)
    module = StateSpaceAttention(embed_dim=4, num_heads=1, state_size=3).double()
    (x,) = sequences((9, 1, 4))
    gate, inputs, dt = (y[:, 0] for y in module.project_inputs(x))
    kernel = module.conv1d.weight[:, None]
    convolved = F.silu(F.conv1d(inputs.t(), kernel, module.conv1d.bias, padding=3, groups=len(kernel)))
    dt = F.softplus(dt + module.dt_bias)[:, 0]
    values, b, c = convolved.t().split([8, 3, 3], dim=-1)
    kept = (-module.A_log.exp() * dt).exp()
    y = torch.stack(
        [
            module.D * values[i]
            + sum(kept[min(i, j) + 1 : max(i, j) + 1].prod() * (c[i] @ b[j]) * dt[j] * values[j] for j in range(9))
            for i in range(9)
        ]
    )
    y = y * F.silu(gate)
    y = y / (y.square().mean(-1, keepdim=True) + 1e-5).sqrt() * module.norm.weight
    torch.testing.assert_close(module(x)[:, 0], module.out_proj(y))


@pytest.mark.parametrize(
    "kind", [StateSpaceAttention, partial(StateSpaceAttention, causal=True)], ids=["encoder", "decoder"]
)
def test_starts_as_published(kind):
    module = kind(embed_dim=512, num_heads=512)
    dt, rates = F.softplus(module.dt_bias), module.A_log.exp()
    assert 0.001 <= dt.min() < 0.002 and 0.05 < dt.max() <= 0.1001
    assert abs(dt.log().mean() - math.log(0.01)) < 0.3  # uniform on a logarithmic scale
    assert 1 <= rates.min() < 1.5 and 15 < rates.max() <= 16.001 and 8 < rates.mean() < 9
    assert module.D.eq(1).all() and module.norm.weight.eq(1).all()
