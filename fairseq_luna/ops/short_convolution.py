"""Depthwise convolution over a few neighbouring steps."""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from .dtypes import accumulation_dtype


def short_convolution_reference(x: Tensor, weight: Tensor) -> Tensor:
    """Depthwise convolution over K consecutive steps: each channel has its own K weights.

        y_t = sum over i < K of w_i ∘ x_{t+i}

    Args:
        x: ``(T + K - 1, B, C)``, including the caller's padding before the first and after the last step.
        weight: ``(C, K)``.

    Returns:
        ``(T, B, C)`` in the dtype of ``x``, summed in fp32 if ``x`` is half precision.
    """
    dtype = accumulation_dtype(x)
    windows = x.to(dtype).unfold(0, weight.shape[1], 1)  # (T, B, C, K)
    return (windows * weight.to(dtype)).sum(-1).to(x.dtype)


def short_convolution(x: Tensor, weight: Tensor) -> Tensor:
    """Depthwise convolution over K consecutive steps; specified by :func:`short_convolution_reference`.

    Args:
        x: ``(T + K - 1, B, C)``.
        weight: ``(C, K)``.

    Returns:
        ``(T, B, C)`` in the dtype of ``x`` (under autocast in autocast's).
    """
    if x.shape[0] == weight.shape[1]:
        return (x * weight.t()[:, None]).sum(0, keepdim=True)
    in_full = x.dtype in (torch.float32, torch.float64) and not torch.is_autocast_enabled("cpu")
    if x.device.type == "cpu" and in_full and not torch.compiler.is_compiling():
        return ShiftedSum.apply(x, weight)
    return F.conv1d(x.permute(1, 2, 0), weight[:, None], groups=len(weight)).permute(2, 0, 1)


class ShiftedSum(torch.autograd.Function):
    """:func:`short_convolution_reference` without its sum in fp32: for fp32 and fp64."""

    @staticmethod
    def forward(x: Tensor, weight: Tensor) -> Tensor:
        taps = weight.t().contiguous()
        first, *others = shifts(x, len(taps))
        y = first * taps[0]
        for shifted, tap in zip(others, taps[1:], strict=True):
            y.addcmul_(shifted, tap)
        return y

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor], _: Tensor) -> None:
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor]:
        # A graph for the next derivative costs time even if it is not asked for.
        gradients: Any = _Gradients.apply if torch.is_grad_enabled() else _Gradients.forward
        return gradients(gradient, *ctx.saved_tensors)

    @staticmethod
    def vmap(info: Any, in_dims: tuple[int | None, ...], x: Tensor, weight: Tensor) -> tuple[Tensor, int]:
        together = _as_channels(info.batch_size, in_dims, x, weight)
        return ShiftedSum.apply(*together).unflatten(2, (info.batch_size, -1)), 2


class _Gradients(torch.autograd.Function):
    """Those of x and of the weight, for the gradient g of the sum.

    In the directions a and b they are ``g . (the sum of a with the weight + the sum of x with b)``: what
    differentiates the sum differentiates them.
    """

    @staticmethod
    def forward(g: Tensor, x: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
        taps = weight.t().contiguous()
        of_x = torch.zeros_like(x)
        for shifted, tap in zip(shifts(of_x, len(taps)), taps, strict=True):
            shifted.addcmul_(g, tap)
        product = torch.empty_like(g)  # one for all taps: new memory costs more than the product
        of_taps = [torch.mul(g, shifted, out=product).sum((0, 1)) for shifted in shifts(x, len(taps))]
        return of_x, torch.stack(of_taps, dim=1)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor, Tensor], _: tuple[Tensor, Tensor]) -> None:
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx: Any, a: Tensor, b: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        g, x, weight = ctx.saved_tensors
        return ShiftedSum.apply(a, weight) + ShiftedSum.apply(x, b), *_Gradients.apply(g, a, b)

    @staticmethod
    def vmap(
        info: Any, in_dims: tuple[int | None, ...], *inputs: Tensor
    ) -> tuple[tuple[Tensor, Tensor], tuple[int, int]]:
        of_x, of_weight = _Gradients.apply(*_as_channels(info.batch_size, in_dims, *inputs))
        cases = info.batch_size, -1
        return (of_x.unflatten(2, cases), of_weight.unflatten(0, cases)), (2, 0)


def _as_channels(size: int, in_dims: tuple[int | None, ...], *inputs: Tensor) -> list[Tensor]:
    """The ``inputs`` of ``size`` cases, whose dimension is joined with that of the channels: for ``torch.vmap``.

    That is the last dimension, but of the weight, the last input, the first.
    """
    apart = [
        x.expand(size, *x.shape) if dim is None else x.movedim(dim, 0) for x, dim in zip(inputs, in_dims, strict=True)
    ]
    return [*(x.movedim(0, 2).flatten(2) for x in apart[:-1]), apart[-1].flatten(0, 1)]


def shifts(x: Tensor, count: int) -> list[Tensor]:
    """What each of ``count`` taps sees of ``x (T + count - 1, B, C)``: views ``(T, B, C)``."""
    steps = len(x) - count + 1
    return [x[first : first + steps] for first in range(count)]
