"""The mathematics of one Apollo step (arXiv 2009.13586), on lists of tensors and without a device sync."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

# The lower bound of |B| with the constant rebound. Learning rates and eps are relative to it.
BOUND = 0.01
DEFAULT_DECAY = {"constant": "L2", "belief": "decoupled"}
STATE = ("exp_avg", "hessian", "direction")


def update(params: list[Tensor], states: list[dict[str, Any]], step: int, options: dict[str, Any]) -> None:
    """Update tensors that share device and dtype, in place.

    Temporaries of the parameters' size, one at a time: the surprise (gradient minus its mean), the squared direction
    and the bounded curvature. torch promotes half-precision parameters and gradients to the fp32 of their state.

    Args:
        params: dense and not empty, each with a gradient.
        states: for each parameter, the tensors named in ``STATE``, in fp32 or wider.
        step: number of this step, counted from 1.
        options: a parameter group, see :class:`fairseq_luna.optim.apollo.Apollo`.
    """
    exp_avg, hessian, direction = ([state[name] for state in states] for name in STATE)
    grads = [p.grad for p in params if p.grad is not None]
    decay_type = options["weight_decay_type"] or DEFAULT_DECAY[options["rebound"]]
    weight_decay, belief = options["weight_decay"], options["rebound"] == "belief"
    rate = (1 - options["beta"]) / (1 - options["beta"] ** step)

    surprise = torch._foreach_sub(grads, exp_avg)
    if weight_decay and decay_type == "L2":
        torch._foreach_add_(surprise, params, alpha=weight_decay)
    torch._foreach_add_(exp_avg, surprise, alpha=rate)
    change = rate * _dots(surprise, direction)
    largest = None
    if belief:
        torch._foreach_abs_(surprise)
        largest = torch._foreach_max(surprise)
    del surprise

    floor = options["eps"] if belief else options["eps"] / BOUND
    _follow_secant(hessian, direction, change, floor)

    curvature = torch._foreach_abs(hessian)
    if largest is None:
        torch._foreach_clamp_min_(curvature, BOUND)
    else:
        torch._foreach_maximum_(curvature, largest)
        torch._foreach_add_(curvature, options["eps"] / rate)

    torch._foreach_copy_(direction, exp_avg)
    torch._foreach_div_(direction, curvature)
    if weight_decay and decay_type == "decoupled":
        torch._foreach_add_(direction, params, alpha=weight_decay)
    if weight_decay and decay_type == "stable":
        for d, p, h in zip(direction, params, curvature, strict=True):
            d.addcdiv_(p, h.mean(), value=weight_decay)
    torch._foreach_add_(params, direction, alpha=-options["lr"])


def _follow_secant(hessian: list[Tensor], direction: list[Tensor], change: Tensor, floor: float) -> None:
    """Correct each diagonal so that it predicts the gradient's change along the last direction.

    The paper first divides d by n = ||d||_4 + floor; here the scalar coefficients include the powers of n, which saves
    a pass over d. ``change``: <rate * surprise, d> of each tensor.
    """
    squared = torch._foreach_mul(direction, direction)
    n = torch.stack(torch._foreach_norm(squared)).sqrt_().add_(floor)
    # Divide twice: n ** 4 would underflow for a small floor.
    coefficients = -(change + _dots(hessian, squared)) / n.square() / n.square()
    for b, sq, c in zip(hessian, squared, coefficients.unbind(), strict=True):
        b.addcmul_(sq, c)


def _dots(left: Sequence[Tensor], right: Sequence[Tensor]) -> Tensor:
    """Inner product of each pair of tensors, ``(len(left),)``; torch has no multi-tensor sum."""
    return torch.stack([torch.dot(a.flatten(), b.flatten()) for a, b in zip(left, right, strict=True)])
