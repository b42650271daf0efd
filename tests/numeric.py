"""Inputs and tolerances of the tests of ops."""

import torch
from torch import Tensor

TOLERANCE = {
    torch.float64: {"rtol": 1e-9, "atol": 1e-10},
    torch.float32: {"rtol": 1e-4, "atol": 1e-5},
    torch.bfloat16: {"rtol": 2e-2, "atol": 2e-2},
    torch.float16: {"rtol": 6e-3, "atol": 6e-3},
}

DTYPE_IDS = {torch.float64: "fp64", torch.float32: "fp32", torch.bfloat16: "bf16", torch.float16: "fp16"}


def randn(*shape: int, dtype: torch.dtype = torch.float64, seed: int = 0, grad: bool = True) -> Tensor:
    generator = torch.Generator().manual_seed(seed + 7919 * len(shape) + sum(shape))
    return torch.randn(*shape, generator=generator, dtype=torch.float64).to(dtype).requires_grad_(grad)


def random_padding(batch: int, steps: int, *, share: float, seed: int = 0) -> Tensor:
    """Padding anywhere, ``(B, T)``, a ``share`` of the steps."""
    generator = torch.Generator().manual_seed(seed)
    return torch.rand(batch, steps, generator=generator) < share


def gradients(output: Tensor, *inputs: Tensor) -> tuple[Tensor, ...]:
    """Of a random projection of ``output``, so that no element's gradient can hide another's."""
    generator = torch.Generator().manual_seed(3)
    weight = torch.randn(output.shape, generator=generator, dtype=torch.float64).to(output.dtype)
    return torch.autograd.grad((output * weight).sum(), inputs)
