"""Generation form: a state of constant size, one step at a time."""

from typing import NamedTuple

import torch
from torch import Tensor

from ..dtypes import accumulation_dtype


class RunningSoftmax(NamedTuple):
    """A softmax over the real steps so far and the mean of their values, in fp32 if these are half precision."""

    # (B, H, 1), log of the sum of exp(s_j); the lowest number before the first real step. A logarithm takes one
    # operator where a largest score and a sum take six, but fp32 would lose what the 100,000th step adds: it is fp64.
    log_denominator: Tensor
    mean: Tensor  # (B, H, 1, D)


def initial_running_softmax(v: Tensor) -> RunningSoftmax:
    """The state before the first step, for values of the shape, dtype and device of ``v (B, H, any T, D)``."""
    batch, heads, _, size = v.shape
    lowest = torch.finfo(torch.float64).min
    return RunningSoftmax(
        log_denominator=v.new_full((batch, heads, 1), lowest, dtype=torch.float64),
        mean=v.new_zeros(batch, heads, 1, size, dtype=accumulation_dtype(v)),
    )


def prefix_softmax_step(
    scores: Tensor, v: Tensor, state: RunningSoftmax, *, padding_mask: Tensor | None = None
) -> tuple[Tensor, RunningSoftmax]:
    """One or more steps of :func:`.naive.prefix_softmax`, continued from ``state``.

    Args:
        scores: ``(B, H, T)``, usually T = 1, of any float dtype.
        v: ``(B, H, T, D)``.
        state: the state after the previous steps.
        padding_mask: ``(B, T)`` bool, True = padding; None = no padding.

    Returns:
        ``(B, H, T, D)`` in the dtype of ``v``, and the state after these steps.
    """
    values = v.to(state.mean.dtype)
    if padding_mask is not None:
        scores = scores.masked_fill(padding_mask[:, None, :], -torch.inf)
    if v.shape[2] == 1:
        state = advance(scores, values, state)
        return state.mean.to(v.dtype), state
    means = []
    for t in range(v.shape[2]):
        state = advance(scores[:, :, t : t + 1], values[:, :, t : t + 1], state)
        means.append(state.mean)
    return torch.cat(means, dim=2).to(v.dtype), state


def advance(score: Tensor, value: Tensor, state: RunningSoftmax) -> RunningSoftmax:
    """Add ``value (B, H, 1, D)`` with ``score (B, H, 1)`` to the mean; a score of -inf leaves the state unchanged."""
    # exp(s) / (exp(s) + the sum so far). No score overflows it.
    share = (score - state.log_denominator).sigmoid().to(value.dtype)
    # A running mean instead of a numerator: the mean of equal values is exact after any number of steps.
    return RunningSoftmax(
        log_denominator=torch.logaddexp(state.log_denominator, score),
        mean=torch.lerp(state.mean, value, share[..., None]),
    )
