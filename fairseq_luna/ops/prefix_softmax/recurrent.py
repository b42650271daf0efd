"""Generation form: a state of constant size, one step at a time."""

from typing import NamedTuple

import torch
from torch import Tensor

from ..dtypes import accumulation_dtype
from ..padding import Padding, PaddingLike


class RunningSoftmax(NamedTuple):
    """A softmax over the real steps so far and the mean of their values, in fp32 if these are half precision."""

    # (B, H, 1), log of the sum of exp(s_j); the lowest number before the first real step. A logarithm takes one
    # operator where a largest score and a sum take six, but fp32 would lose what the 100,000th step adds: it is fp64.
    log_denominator: Tensor
    mean: Tensor  # (B, H, 1, D)


def prefix_softmax_step(
    scores: Tensor, v: Tensor, state: RunningSoftmax | None, *, padding: PaddingLike = None
) -> tuple[Tensor, RunningSoftmax]:
    """One step of :func:`.naive.prefix_softmax`: its arguments with T = 1; the state is None before the first.

    Returns:
        ``(B, H, 1, D)`` in the dtype of ``v``, and the state after this step.
    """
    padding = Padding.of(padding)
    values = v.to(accumulation_dtype(v))
    if padding.mask is not None:
        scores = scores.masked_fill(padding.mask[:, None], -torch.inf)  # leaves the state unchanged
    if state is None:
        lowest = torch.finfo(torch.float64).min
        nothing = v.new_full(v.shape[:3], lowest, dtype=torch.float64)
        state = RunningSoftmax(nothing, torch.zeros_like(values))
    # exp(s) / (exp(s) + the sum so far). No score overflows it.
    share = (scores - state.log_denominator).sigmoid().to(values.dtype)
    # A running mean instead of a numerator: the mean of equal values is exact after any number of steps.
    mean = torch.lerp(state.mean, values, share[..., None])
    return mean.to(v.dtype), RunningSoftmax(torch.logaddexp(state.log_denominator, scores), mean)
