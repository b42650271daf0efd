"""The mathematics of one Apollo step (arXiv 2009.13586), on lists of tensors and without a device sync."""

from typing import Any

import torch
from torch import Tensor

from .tensor_lists import cast, has_multi_tensor_kernels

# The lower bound of |B| with the constant rebound. Learning rates and eps are relative to it.
BOUND = 0.01
DEFAULT_DECAY = {"constant": "L2", "belief": "decoupled"}
STATE = ("exp_avg", "hessian", "direction")

Tensors = list[Tensor] | tuple[Tensor, ...]  # as torch's multi-tensor calls take and return them


def update(params: list[Tensor], states: list[dict[str, Any]], step: int, options: dict[str, Any]) -> Tensor:
    """Update tensors that share device and dtype, in place.

    All operations are multi-tensor calls with operands of one dtype and equal shapes, which accelerators launch as a
    few kernels. Temporaries of the parameters' size: three at a time, and for half precision fp32 copies of
    parameters and gradients.

    Args:
        params: dense and not empty, each with a gradient.
        states: for each parameter, the tensors named in ``STATE``, in fp32 or wider.
        step: number of this step, counted from 1.
        options: a parameter group, see :class:`fairseq_luna.optim.apollo.Apollo`.

    Returns:
        ``(len(params),)``, the surprise of each gradient along the last direction; not finite if the gradient is not.
    """
    exp_avg, hessian, direction = ([state[name] for state in states] for name in STATE)
    dtype = exp_avg[0].dtype
    grads = cast([p.grad for p in params if p.grad is not None], dtype)
    weights = cast(params, dtype)
    decay_type = options["weight_decay_type"] or DEFAULT_DECAY[options["rebound"]]
    weight_decay, belief = options["weight_decay"], options["rebound"] == "belief"
    rate = (1 - options["beta"]) / (1 - options["beta"] ** step)

    surprise = torch._foreach_sub(grads, exp_avg)
    del grads
    if weight_decay and decay_type == "L2":
        torch._foreach_add_(surprise, weights, alpha=weight_decay)
    torch._foreach_add_(exp_avg, surprise, alpha=rate)
    change = rate * _dots(surprise, direction)
    largest = None
    if belief:
        largest = torch.stack(torch._foreach_norm(surprise, torch.inf))
    del surprise

    floor = options["eps"] if belief else options["eps"] / BOUND
    _follow_secant(hessian, direction, change, floor)

    curvature = torch._foreach_abs(hessian)
    if largest is None:
        torch._foreach_clamp_min_(curvature, BOUND)
    else:
        torch._foreach_maximum_(curvature, spread(largest, curvature))
        torch._foreach_add_(curvature, options["eps"] / rate)

    torch._foreach_copy_(direction, exp_avg)
    torch._foreach_div_(direction, curvature)
    if weight_decay and decay_type == "decoupled":
        torch._foreach_add_(direction, weights, alpha=weight_decay)
    if weight_decay and decay_type == "stable":
        # By the mean of the curvature: the division by the number of elements is in the factors.
        total = torch.stack(torch._foreach_norm(curvature, 1))
        torch._foreach_addcdiv_(direction, weights, spread(total, weights), [weight_decay * w.numel() for w in weights])
    torch._foreach_add_(weights, direction, alpha=-options["lr"])
    if weights is not params:
        torch._foreach_copy_(params, weights)
    return change


def spread(values: Tensor, like: Tensors) -> list[Tensor]:
    """``values (len(like),)`` as operands of a multi-tensor call: ``values[i]`` for each element of ``like[i]``.

    They are broadcast, or, where broadcasting would cost a kernel for each tensor, written out.
    """
    if not has_multi_tensor_kernels(values.device):
        return list(values.unbind())
    sizes = [x.numel() for x in like]
    flat = torch.cat([value.expand(size) for value, size in zip(values.unbind(), sizes, strict=True)])
    return [part.view(x.shape) for part, x in zip(flat.split(sizes), like, strict=True)]


def _follow_secant(hessian: list[Tensor], direction: list[Tensor], change: Tensor, floor: float) -> None:
    """Correct each diagonal so that it predicts the gradient's change along the last direction.

    The paper first divides d by n = ||d||_4 + floor; here the scalar coefficients include the powers of n, which saves
    a pass over d. ``change``: <rate * surprise, d> of each tensor.
    """
    squared = torch._foreach_mul(direction, direction)
    n = torch.stack(torch._foreach_norm(squared)).sqrt_().add_(floor)
    # Divide twice: n ** 4 would underflow for a small floor.
    n.square_()
    coefficients = (change + _dots(hessian, squared)).div_(n).div_(n)
    torch._foreach_addcmul_(hessian, squared, spread(coefficients, hessian), value=-1)


def _dots(left: Tensors, right: Tensors) -> Tensor:
    """Inner product of each pair of tensors, ``(len(left),)``."""
    if not has_multi_tensor_kernels(left[0].device):
        return torch.stack([torch.dot(a.flatten(), b.flatten()) for a, b in zip(left, right, strict=True)])
    return _tensor_sums(torch._foreach_mul(left, right))


def _tensor_sums(tensors: Tensors) -> Tensor:
    """Sum of each tensor, ``(len(tensors),)``, for want of a multi-tensor sum: ``||x||_1 - 2 ||min(x, 0)||_1``.

    The rounding error is as for a sum: relative to the sum of absolute values. ``tensors`` are overwritten.
    """
    norms = torch._foreach_norm(tensors, 1)
    torch._foreach_clamp_max_(tensors, 0)
    absolute, negative = torch.stack([*norms, *torch._foreach_norm(tensors, 1)]).view(2, -1)
    return absolute.sub_(negative, alpha=2)
