"""Properties of retention beside the contract of every attention."""

import pytest
import torch

from every_attention import in_steps
from fairseq_luna.modules import RetentionAttention, retention
from fairseq_luna.modules.retention import rotations
from support import CLOSE, assert_published, golden


def renamed(theirs):
    return {name.replace("g_proj", "gate_proj"): x for name, x in theirs.items()}


@pytest.fixture
def published(monkeypatch):
    """torchscale's numbers, and our module with its parameters; theirs have this in the norm."""
    monkeypatch.setattr(retention, "EPSILON", 1e-12)
    recorded = golden("retention.pt")["module"]
    module = RetentionAttention(
        causal=True, embed_dim=recorded["embed_dim"], num_heads=recorded["num_heads"], bias=False
    )
    module.load_state_dict(renamed(recorded["state_dict"]))
    return recorded, module


def test_equals_the_published_numbers(published):
    recorded, module = published
    assert_published(module, recorded, renamed(recorded["grads"]))


@torch.no_grad()
def test_one_step_at_a_time_equals_the_published_recurrence(published):
    recorded, module = published
    steps = in_steps(module, recorded["x"].transpose(0, 1)).transpose(0, 1)
    torch.testing.assert_close(steps, recorded["steps"], **CLOSE)


def test_an_angle_is_exact_at_a_late_position():
    cos, sin = rotations(torch.tensor([[100_000]]), 2, torch.float32)
    assert (cos.item(), sin.item()) == pytest.approx((-0.9993608, 0.0357488), abs=1e-6)
