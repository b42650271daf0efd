"""With multi-tensor calls every number of an update is the one that fairseq computes."""

import itertools

import pytest
import torch

from fairseq_luna.compat import multi_tensor
from optim.fairseq_apollo_runs import WRAPPERS, build

SHAPES = [(6, 4), (4,), (), (5, 3), (0,), (2, 3)]
FROZEN, SOMETIMES_UNUSED = 3, 1
OPTIMIZERS = {
    "apollo": [],
    "clipping each": ["--apollo-clip-mode", "each", "--clip-norm", "0.5"],
    "adam": ["--optimizer", "adam"],
}
CASES = [*itertools.product(WRAPPERS, OPTIMIZERS), ("flattened_fp16", "adam")]


@pytest.fixture
def fairseqs(monkeypatch):
    """Call to take fairseq's own functions."""

    def restore():
        for owner, name, _ in multi_tensor.REPLACED:
            monkeypatch.setattr(owner, name, getattr(owner, name).__wrapped__)

    # fairseq keeps the flattened gradients by the number of the GPU, which is None for tensors on a CPU.
    monkeypatch.setattr(torch.cuda, "current_device", lambda: None)
    return restore


def update(params, optimizer, number, *, clip_norm, scale=1.0):
    """What fairseq's trainer does in an update of two batches: the norm, and whether a step was made."""
    generator = torch.Generator().manual_seed(number)
    used = [p for i, p in enumerate(params) if p.requires_grad and (i != SOMETIMES_UNUSED or number % 2)]
    optimizer.zero_grad()
    for _ in range(2):
        noise = [torch.randn(p.t().shape, generator=generator).t() for p in used]
        optimizer.backward(scale * sum((p.float() * (p.float() + x)).sum() for p, x in zip(used, noise, strict=True)))
    optimizer.multiply_grads(1 / 7)
    try:
        norm = optimizer.clip_grad_norm(clip_norm)
    except OverflowError:
        optimizer.zero_grad()
        return torch.tensor(-1.0), False
    if not norm.isfinite():
        return norm, False
    optimizer.step()
    return norm, True


def numbers(params, optimizer):
    """Everything that an update changes."""
    yield from params
    for kept in ("params", "fp32_optimizer"):
        for p in getattr(getattr(optimizer, kept, None), "params", ()):
            yield p
            yield torch.zeros(()) if p.grad is None else p.grad
    for state in optimizer.optimizer.state.values():
        yield from (torch.as_tensor(value) for value in state.values())
    scaler = getattr(optimizer, "scaler", None)
    yield torch.tensor(0.0 if scaler is None else scaler.loss_scale)


def run(precision, flags, clip_norm):
    """Three updates, and two more from a checkpoint: all numbers of each.

    One overflows: the second, if fairseq skips such an update because it scales the loss, otherwise the last.
    """
    found, made = [], []
    # fairseq's vector has a place for every parameter that it is given.
    how = {"shapes": SHAPES, "frozen": [] if "flattened" in precision else [FROZEN]}
    params, optimizer = build(precision, *flags, **how)
    overflows = 4 if getattr(optimizer, "scaler", None) is None else 1
    for number in range(5):
        if number == 3:
            saved, state = [p.detach().clone() for p in params], optimizer.state_dict()
            params, optimizer = build(precision, *flags, **how)
            for p, value in zip(params, saved, strict=True):
                p.data.copy_(value)
            optimizer.load_state_dict(state)
        scale = torch.inf if number == overflows else 1.0
        norm, stepped = update(params, optimizer, number, clip_norm=clip_norm, scale=scale)
        made.append(stepped)
        found.append([x.detach().clone() for x in (norm, *numbers(params, optimizer))])
    assert made == [number != overflows for number in range(5)]
    return found


@pytest.mark.parametrize("clip_norm", [0.0, 0.5])
@pytest.mark.parametrize(("precision", "optimizer"), CASES, ids=lambda value: value.replace(" ", "_"))
def test_an_update_is_fairseqs_bit_for_bit(precision, optimizer, clip_norm, fairseqs):
    ours = run(precision, OPTIMIZERS[optimizer], clip_norm)
    fairseqs()
    theirs = run(precision, OPTIMIZERS[optimizer], clip_norm)
    torch.testing.assert_close(ours, theirs, rtol=0, atol=0, equal_nan=True)
