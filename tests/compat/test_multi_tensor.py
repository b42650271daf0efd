"""With multi-tensor calls every number of an update is the one that fairseq computes."""

import itertools
from argparse import Namespace

import pytest
import torch
from fairseq.optim import FairseqOptimizer
from torch.utils._python_dispatch import TorchDispatchMode

from fairseq_luna.environment import fairseq_distribution
from optim.fairseq_apollo_runs import WRAPPERS, build

pytestmark = pytest.mark.usefixtures("as_on_a_gpu")
LATER_FAIRSEQ = fairseq_distribution().startswith("fairseq-fixed")
SHAPES = [(6, 4), (4,), (), (5, 3), (0,), (2, 3)]
FROZEN, SOMETIMES_UNUSED = 3, 1
OPTIMIZERS = {
    "apollo": [],
    "clipping each": ["--apollo-clip-mode", "each", "--clip-norm", "0.5"],
    "adam": ["--optimizer", "adam"],
    "decaying adam": ["--optimizer", "adam", "--adam-betas", "(0.5, 0.7)", "--weight-decay", "0.3"],
}
FACTORS = [
    *(0.3, torch.tensor(0.3), torch.tensor(0.3, dtype=torch.float64)),
    pytest.param(torch.tensor([0.3]), marks=pytest.mark.skipif(LATER_FAIRSEQ, reason="it refuses such a factor")),
]
CASES = [*itertools.product(WRAPPERS, OPTIMIZERS), ("flattened_fp16", "decaying adam")]


@pytest.fixture(autouse=True)
def no_number_of_a_gpu(monkeypatch, flattened_on_a_cpu):
    """fairseq keeps the flattened gradients by the number of the GPU, which is None for tensors on a CPU."""
    monkeypatch.setattr(torch.cuda, "current_device", lambda: None)


def update(params, optimizer, number, *, clip_norm, scale=1.0):
    """An update of two batches as in fairseq's trainer: the norm, and whether a step was made."""
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


def run(precision, flags, clip_norm, resumed=lambda: None):
    """Three updates, and two more from a checkpoint, after a call of ``resumed``: all numbers of each.

    One overflows: the second, if fairseq skips such an update because it scales the loss, otherwise the last.
    """
    found, made = [], []
    how = {"shapes": SHAPES, "frozen": [FROZEN]}
    params, optimizer = build(precision, *flags, **how)
    overflows = 4 if getattr(optimizer, "scaler", None) is None else 1
    for number in range(5):
        if number == 3:
            resumed()
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


@pytest.mark.parametrize("precision", WRAPPERS)
def test_a_checkpoint_is_fairseqs(precision, fairseqs):
    """A run that is resumed by fairseq's own functions makes the same numbers as a run that is resumed with ours."""
    flags = OPTIMIZERS["decaying adam"]
    ours, then_theirs = run(precision, flags, 0.5), run(precision, flags, 0.5, resumed=fairseqs)
    torch.testing.assert_close(ours, then_theirs, rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("factor", FACTORS)
def test_gradients_are_multiplied_as_by_fairseq(factor, dtype, fairseqs):
    precision = {torch.float32: "fp32", torch.bfloat16: "memory_efficient_bf16", torch.float16: "memory_efficient_fp16"}

    def multiplied():
        params, optimizer = build(precision[dtype], *OPTIMIZERS["adam"], shapes=[shape for shape in SHAPES if shape])
        for p in params:
            p.grad = p.detach().clone()
        getattr(optimizer, "wrapped_optimizer", optimizer).multiply_grads(factor)
        return [p.grad for p in params]

    ours = multiplied()
    fairseqs()
    torch.testing.assert_close(ours, multiplied(), rtol=0, atol=0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("factor_dtype", [torch.float32, torch.float64], ids=str)
def test_where_multi_tensor_calls_are_kernels_the_factor_has_the_gradients_dtype(factor_dtype, dtype):
    """Otherwise torch multiplies the tensors one by one."""
    seen = []

    class Seen(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            if "mul" in func.name():
                seen.append((func.name(), args[1].dtype))
            return func(*args, **(kwargs or {}))

    params = [torch.nn.Parameter(torch.empty(2, 3, device="meta", dtype=dtype)) for _ in range(3)]
    for p in params:
        p.grad = torch.empty_like(p)
    with Seen():
        FairseqOptimizer.multiply_grads(Namespace(params=params), torch.empty((), device="meta", dtype=factor_dtype))
    assert seen == [("aten::_foreach_mul_.Tensor", dtype)]
