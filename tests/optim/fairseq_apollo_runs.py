"""Apollo as fairseq's trainer builds and drives it, without a model."""

import torch
from fairseq import optim
from torch import nn

import fairseq_luna.models  # noqa: F401 (registers both and installs the trainer hooks)
from harness.parsing import parse

WRAPPERS = {
    "fp32": (None, []),
    "bf16": (optim.FP16Optimizer, ["--bf16"]),
    "fp16": (optim.FP16Optimizer, ["--fp16", "--fp16-no-flatten-grads"]),
    "memory_efficient_bf16": (optim.MemoryEfficientFP16Optimizer, ["--memory-efficient-bf16"]),
    "memory_efficient_fp16": (optim.MemoryEfficientFP16Optimizer, ["--memory-efficient-fp16"]),
}
FLATTENED = (optim.FP16Optimizer, ["--fp16"])  # one vector of all parameters
DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}


def config(*flags):
    """fairseq's config from a command line, as fairseq-train makes it."""
    fixed = ["data", "--arch", "transformer_tiny", "--optimizer", "apollo", "--lr", "0.01"]
    fixed += ["--lr-scheduler", "milestone", "--warmup-updates", "1000"]
    return parse([*fixed, *flags])


def build(precision, *flags, shapes=((6, 4), (4,), (5, 3)), frozen=()):
    """Parameters in the precision's dtype, and the optimizer that fairseq's trainer would build for them."""
    wrapper, own_flags = WRAPPERS.get(precision, FLATTENED)
    cfg = config(*own_flags, *flags)
    generator = torch.Generator().manual_seed(1)
    dtype = DTYPES[precision.split("_")[-1]]
    params = [nn.Parameter(torch.randn(shape, generator=generator).to(dtype)) for shape in shapes]
    for number in frozen:
        params[number].requires_grad_(False)
    if wrapper is None:
        return params, optim.build_optimizer(cfg.optimizer, params)
    return params, wrapper.build_optimizer(cfg, params)


def train(optimizer, params, steps):
    """The gradient norms of steps of fairseq's trainer on ``sum p ** 2``, summed over 8 tokens."""
    norms = []
    for _ in range(steps):
        optimizer.zero_grad()
        optimizer.backward(8 * sum((p.float() ** 2).sum() for p in params))
        optimizer.multiply_grads(1 / 8)
        norms.append(float(optimizer.clip_grad_norm(0.0)))
        optimizer.step()
    return norms


def spy_on_steps(optimizer):
    """Record the norm of each gradient when the torch optimizer uses it."""
    seen, inner = [], optimizer.optimizer
    inner.register_step_pre_hook(
        lambda *_: seen.append([p.grad.float().norm().item() for g in inner.param_groups for p in g["params"]])
    )
    return seen
