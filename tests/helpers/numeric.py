"""Inputs, gradients and tolerances for tests of ops and modules."""

from collections.abc import Iterable

import pytest
import torch
from torch import Tensor

TOLERANCE = {
    torch.float64: {"rtol": 1e-9, "atol": 1e-10},
    torch.float32: {"rtol": 1e-4, "atol": 1e-5},
    torch.bfloat16: {"rtol": 2e-2, "atol": 2e-2},
    torch.float16: {"rtol": 6e-3, "atol": 6e-3},
}

DTYPE_IDS = {torch.float64: "fp64", torch.float32: "fp32", torch.bfloat16: "bf16", torch.float16: "fp16"}
EVERY_DTYPE = pytest.mark.parametrize("dtype", DTYPE_IDS, ids=DTYPE_IDS.values())
PADDED = pytest.mark.parametrize("padded", [False, True], ids=["whole", "padded"])


def randn(*shape: int, dtype: torch.dtype = torch.float64, seed: int = 0, grad: bool = True) -> Tensor:
    generator = torch.Generator().manual_seed(seed + 7919 * len(shape) + sum(shape))
    return torch.randn(*shape, generator=generator, dtype=torch.float64).to(dtype).requires_grad_(grad)


def random_padding(batch: int, steps: int, *, share: float, seed: int = 0) -> Tensor:
    """A padding mask ``(B, T)`` with about this ``share`` of padding, at any position."""
    generator = torch.Generator().manual_seed(seed)
    return torch.rand(batch, steps, generator=generator) < share


def gradients(output: Tensor, *inputs: Tensor) -> tuple[Tensor, ...]:
    """Gradients of a random projection of ``output``, so that errors in its elements cannot cancel."""
    generator = torch.Generator().manual_seed(3)
    weight = torch.randn(output.shape, generator=generator, dtype=torch.float64).to(output.dtype)
    return torch.autograd.grad((output * weight).sum(), inputs)


def assert_gradients_close(actual: Tensor, expected: Tensor, inputs: Iterable[Tensor], dtype: torch.dtype) -> None:
    """Compare gradients within the tolerance of ``dtype``, relative to the largest element where that is above 1."""
    inputs = list(inputs)
    for ours, theirs in zip(gradients(actual, *inputs), gradients(expected, *inputs), strict=True):
        scale = theirs.abs().max().clamp(min=1).item()
        torch.testing.assert_close(ours / scale, theirs / scale, **TOLERANCE[dtype])


def assert_same_function(actual: Tensor, expected: Tensor, inputs: Iterable[Tensor]) -> None:
    """Two outputs, and their gradients of all ``inputs``, are equal in fp64."""
    torch.testing.assert_close(actual, expected)
    assert_gradients_close(actual, expected, inputs, torch.float64)


def sequences(*shapes: tuple[int, ...], dtype: torch.dtype = torch.float64) -> list[Tensor]:
    """Random inputs of a module, one for each of the ``shapes``, which require a gradient."""
    generator = torch.Generator().manual_seed(1)
    return [torch.randn(s, generator=generator, dtype=torch.float64).to(dtype).requires_grad_() for s in shapes]


def scattered_padding(batch: int, steps: int) -> Tensor:
    """A padding mask ``(B, T)`` with padding at any position, and on the left of the first row."""
    mask = torch.rand(batch, steps, generator=torch.Generator().manual_seed(2)) < 0.3
    mask[0, :4] = True
    return mask


def mixed_padding(steps: int) -> Tensor:
    """A padding mask ``(3, T)`` with padding on the left, on the right, and scattered."""
    mask = torch.zeros(3, steps, dtype=torch.bool)
    mask[0, :13] = mask[1, -5:] = True
    mask[2] = torch.rand(steps, generator=torch.Generator().manual_seed(2)) < 0.4
    return mask
