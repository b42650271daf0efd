"""The form that generates: one step from a state whose size does not depend on the step's number."""

from typing import NamedTuple

import torch
from torch import Tensor

from ..dtypes import accumulation_dtype
from .chunked import one_for_none


class RunningSoftmax(NamedTuple):
    """A softmax over the real steps so far, and what it makes of their values."""

    largest: Tensor  # (B, H), the largest score; the dtype's minimum before the first real step
    denominator: Tensor  # (B, H), the sum of exp(s_j - largest)
    mean: Tensor  # (B, H, D), the numerator over the denominator; all three fp32 when the values are half precision


def initial_running_softmax(v: Tensor) -> RunningSoftmax:
    """The state before the first step, for values like ``v (B, H, ., D)``."""
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
    """Take the next step, or a few: :func:`.naive.prefix_softmax` continued from ``state``.

    Args:
        scores: ``(B, H, T)``, usually T = 1; may be of a wider dtype than ``v``.
        v: ``(B, H, T, D)``.
        state: what came before.
        padding_mask: ``(B, T)`` bool, True = padding; None = nothing is padded.

    Returns:
        ``(B, H, T, D)`` in the dtype of ``v``, and the state after the last of these steps.
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
    """Take ``v (B, H, D)`` into the mean with ``scores (B, H)``; a score of -inf leaves the state as it is."""
    largest = torch.maximum(state.largest, scores)
    weight = (scores - largest).exp()
    denominator = state.denominator * (state.largest - largest).exp() + weight
    # Moving the mean, rather than adding to a numerator, keeps equal values equal at any number of steps.
    share = weight / one_for_none(denominator)
    return RunningSoftmax(largest, denominator, torch.lerp(state.mean, v, share[..., None]))
