"""Generation form: one number for each slot, one step at a time."""

from typing import NamedTuple

import torch
from torch import Tensor

from ..dtypes import accumulation_dtype
from .fused import read_slots, slot_scores


class SlotMeans(NamedTuple):
    """The logarithm of the mean of the exponentials of a slot's scores over the real steps so far.

    A mean, because the rounding errors of a sum would grow. Its distance to the sum is the same for all slots, so that
    the weights of the slots are those of the sum.
    """

    log_mean: Tensor  # (B, H, S), fp32 for half precision; 0 before the first real step
    steps: Tensor  # (B,), how many, in the same dtype


def initial_slot_means(q: Tensor, keys: Tensor) -> SlotMeans:
    """The state before the first step, for ``q (B, H, any T, D)`` and ``keys (S, D)``."""
    batch, heads = q.shape[:2]
    dtype = accumulation_dtype(q)
    return SlotMeans(q.new_zeros(batch, heads, len(keys), dtype=dtype), q.new_zeros(batch, dtype=dtype))


def external_causal_attention_step(
    q: Tensor,
    keys: Tensor,
    values: Tensor,
    state: SlotMeans,
    *,
    padding_mask: Tensor | None = None,
    dropout_p: float = 0.0,
) -> tuple[Tensor, SlotMeans]:
    """One or more steps of :func:`.naive.external_causal_attention`, continued from ``state``.

    Args:
        q: ``(B, H, T, D)``, usually T = 1.
        keys: ``(S, D)``.
        values: ``(S, E)``.
        state: the state after the previous steps.
        padding_mask: ``(B, T)`` bool, True = padding.
        dropout_p: dropout probability of the weights.

    Returns:
        ``(B, H, T, E)`` in the dtype of ``q``, and the state after these steps.
    """
    scores = slot_scores(q, keys)
    outputs = []
    for t in range(q.shape[2]):
        state = advance(scores[:, :, t], state, None if padding_mask is None else padding_mask[:, t])
        nothing = (state.steps == 0)[:, None, None, None]
        outputs.append(read_slots(scores[:, :, t : t + 1], state.log_mean[:, :, None], values, nothing, dropout_p))
    return torch.cat(outputs, 2).to(q.dtype), state


def advance(scores: Tensor, state: SlotMeans, padded: Tensor | None) -> SlotMeans:
    """Add ``scores (B, H, S)`` to the means, except where ``padded (B,)``."""
    steps = state.steps + 1
    count = steps[:, None, None]
    change = torch.logaddexp((-1 / count).log1p(), scores - state.log_mean - count.log())
    log_mean = state.log_mean + change
    if padded is None:
        return SlotMeans(log_mean, steps)
    return SlotMeans(
        torch.where(padded[:, None, None], state.log_mean, log_mean), torch.where(padded, state.steps, steps)
    )
