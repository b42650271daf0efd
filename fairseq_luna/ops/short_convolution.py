"""Depthwise convolution over a few neighboring steps."""

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
    """The same function as :func:`short_convolution_reference`, by torch's convolution, or on a CPU by sums of shifts.

    Under autocast the result is in autocast's dtype.
    """
    if x.shape[0] == weight.shape[1]:
        return (x * weight.t()[:, None]).sum(0, keepdim=True)
    if is_compiled_training_step():
        return _compiled_convolution(x, weight)
    in_full = x.dtype in (torch.float32, torch.float64) and not torch.is_autocast_enabled("cpu")
    if x.device.type == "cpu" and in_full and not torch.compiler.is_compiling():
        return ShiftedSum.apply(x, weight)
    return F.conv1d(x.permute(1, 2, 0), weight[:, None], groups=len(weight)).permute(2, 0, 1)


def is_compiled_training_step() -> bool:
    """Whether torch.compile traces a graph that may have gradients; torch.export and evaluation are something else."""
    return torch.compiler.is_dynamo_compiling() and torch.is_grad_enabled()


def _compiled_convolution(x: Tensor, weight: Tensor) -> Tensor:
    """:func:`short_convolution` for a compiled training step."""
    dtype, device = accumulation_dtype(x), x.device.type
    result_dtype = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else x.dtype
    return _CompiledConvolution.apply(x.to(dtype), weight.to(dtype)).to(result_dtype)


class _CompiledConvolution(torch.autograd.Function):
    """:class:`ShiftedSum` in operators that inductor makes loops of; its gradients are sums over windows of K steps.

    With the gradient of torch's convolution a compiled training step is for one length: inductor of torch 2.13 compiles
    it again for every other one, and of torch 2.6 and 2.11 on a CPU it may stop there (docs/reliability.md).
    """

    @staticmethod
    def forward(x: Tensor, weight: Tensor) -> Tensor:
        taps = weight.unbind(1)
        first, *others = shifts(x, len(taps))
        y = first * taps[0]
        for shifted, tap in zip(others, taps[1:], strict=True):
            y = torch.addcmul(y, shifted, tap)
        return y

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor], _: Tensor) -> None:
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor]:
        x, weight = ctx.saved_tensors
        taps = weight.shape[1]
        # Not F.pad, which inductor of torch 2.6 cannot read in windows.
        around = gradient.new_zeros(taps - 1, *gradient.shape[1:])
        dx = (torch.cat([around, gradient, around]).unfold(0, taps, 1) * weight.flip(1)).sum(-1)
        return dx, (gradient[..., None] * x.unfold(0, taps, 1)).sum((0, 1))


class ShiftedSum(torch.autograd.Function):
    """:func:`short_convolution_reference` as a sum of shifted sequences, for fp32 and fp64.

    On a CPU it is several times as fast as torch's depthwise convolution.
    """

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
        # A graph for the next derivative costs time even if nobody uses it.
        gradients: Any = _Gradients.apply if torch.is_grad_enabled() else _Gradients.forward
        return gradients(gradient, *ctx.saved_tensors)

    @staticmethod
    def vmap(info: Any, in_dims: tuple[int | None, ...], x: Tensor, weight: Tensor) -> tuple[Tensor, int]:
        together = _cases_as_channels(info.batch_size, in_dims, x, weight)
        return ShiftedSum.apply(*together).unflatten(2, (info.batch_size, -1)), 2


class _Gradients(torch.autograd.Function):
    """The gradients of x and of the weight, for the gradient g of the sum.

    In the directions a and b they are ``g . (the sum of a with the weight + the sum of x with b)``: the functions that
    differentiate the sum differentiate them.
    """

    @staticmethod
    def forward(g: Tensor, x: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
        taps = weight.t().contiguous()
        dx = torch.zeros_like(x)
        for shifted, tap in zip(shifts(dx, len(taps)), taps, strict=True):
            shifted.addcmul_(g, tap)
        product = torch.empty_like(g)  # one for all taps: new memory costs more than the product
        dtaps = [torch.mul(g, shifted, out=product).sum((0, 1)) for shifted in shifts(x, len(taps))]
        return dx, torch.stack(dtaps, dim=1)

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
        dx, dweight = _Gradients.apply(*_cases_as_channels(info.batch_size, in_dims, *inputs))
        cases = info.batch_size, -1
        return (dx.unflatten(2, cases), dweight.unflatten(0, cases)), (2, 0)


def _cases_as_channels(size: int, in_dims: tuple[int | None, ...], *inputs: Tensor) -> list[Tensor]:
    """The ``inputs`` of ``size`` cases, whose dimension is joined with the channels: for ``torch.vmap``.

    Channels are the last dimension, except of the weight, the last input, where they are the first.
    """
    apart = [
        x.expand(size, *x.shape) if dim is None else x.movedim(dim, 0) for x, dim in zip(inputs, in_dims, strict=True)
    ]
    return [*(x.movedim(0, 2).flatten(2) for x in apart[:-1]), apart[-1].flatten(0, 1)]


def shifts(x: Tensor, count: int) -> list[Tensor]:
    """The steps of ``x (T + count - 1, B, C)`` that each of ``count`` taps is multiplied with: views ``(T, B, C)``."""
    steps = x.shape[0] - count + 1
    return [x[first : first + steps] for first in range(count)]
