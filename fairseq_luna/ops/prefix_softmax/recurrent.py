"""Generation form: a state of constant size, one step at a time."""

from typing import NamedTuple

import torch
from torch import Tensor

from ..dtypes import accumulation_dtype
from .shared import nonzero


class RunningSoftmax(NamedTuple):
    """A softmax over the real steps so far and the mean of their values, in fp32 if these are half precision."""

    largest: Tensor  # (B, H), the largest score; the dtype's minimum before the first real step
    denominator: Tensor  # (B, H), the sum of exp(s_j - largest)
    mean: Tensor  # (B, H, D)


def initial_running_softmax(v: Tensor) -> RunningSoftmax:
    """The state before the first step, for values of the shape, dtype and device of ``v (B, H, any T, D)``."""
    batch, heads, _, size = v.shape
    dtype = accumulation_dtype(v)
    return RunningSoftmax(
        largest=v.new_full((batch, heads), torch.finfo(dtype).min, dtype=dtype),
        denominator=v.new_zeros(batch, heads, dtype=dtype),
        mean=v.new_zeros(batch, heads, size, dtype=dtype),
    )


def prefix_softmax_step(
    scores: Tensor, v: Tensor, state: RunningSoftmax, *, padding_mask: Tensor | None = None
) -> tuple[Tensor, RunningSoftmax]:
    """One or more steps of :func:`.naive.prefix_softmax`, continued from ``state``.

    Args:
        scores: ``(B, H, T)``, usually T = 1; may have a wider dtype than ``v``.
        v: ``(B, H, T, D)``.
        state: the state after the previous steps.
        padding_mask: ``(B, T)`` bool, True = padding; None = no padding.

    Returns:
        ``(B, H, T, D)`` in the dtype of ``v``, and the state after these steps.
    """
    dtype = state.mean.dtype
    out_dtype = v.dtype
    scores, v = scores.to(dtype), v.to(dtype)
    if padding_mask is not None:
        scores = scores.masked_fill(padding_mask[:, None, :], -torch.inf)
    means = []
    for t in range(v.shape[2]):
        state = advance(scores[:, :, t], v[:, :, t], state)
        means.append(state.mean)
    return torch.stack(means, dim=2).to(out_dtype), state


def advance(scores: Tensor, v: Tensor, state: RunningSoftmax) -> RunningSoftmax:
    """Add ``v (B, H, D)`` with ``scores (B, H)`` to the mean; a score of -inf leaves the state unchanged."""
    largest = torch.maximum(state.largest, scores)
    weight = (scores - largest).exp()
    denominator = state.denominator * (state.largest - largest).exp() + weight
    # A running mean instead of a numerator: the mean of equal values is exact after any number of steps.
    share = weight / nonzero(denominator)
    return RunningSoftmax(largest, denominator, torch.lerp(state.mean, v, share[..., None]))
