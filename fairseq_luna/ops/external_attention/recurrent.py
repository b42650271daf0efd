"""Generation form: one number for each slot, one step at a time."""

from typing import NamedTuple

import torch
from torch import Tensor

from ..padding import Padding, PaddingLike
from .fused import read_slots, slot_scores


class SlotMeans(NamedTuple):
    """The logarithm of the mean of the exponentials of a slot's scores over the real steps so far.

    A mean, because the rounding errors of a sum would grow. Its distance to the sum is the same for all slots, so that
    the weights of the slots are those of the sum.
    """

    log_mean: Tensor  # (B, H, S), fp32 for half precision; 0 before the first real step
    steps: Tensor  # (B,), how many, in the same dtype


def external_causal_attention_step(
    q: Tensor,
    keys: Tensor,
    values: Tensor,
    state: SlotMeans | None,
    *,
    padding: PaddingLike = None,
    dropout_p: float = 0.0,
) -> tuple[Tensor, SlotMeans]:
    """One step of :func:`.naive.external_causal_attention`: its arguments with T = 1; first the state is None.

    Returns:
        ``(B, H, 1, E)`` in the dtype of ``q``, and the state after this step.
    """
    scores = slot_scores(q, keys)
    newest = scores[:, :, 0]
    state = advance(newest, state or SlotMeans(torch.zeros_like(newest), newest.new_zeros(len(q))), Padding.of(padding))
    nothing = (state.steps == 0)[:, None, None, None]
    return read_slots(scores, state.log_mean[:, :, None], values, nothing, dropout_p).to(q.dtype), state


def advance(scores: Tensor, state: SlotMeans, padding: PaddingLike) -> SlotMeans:
    """Add ``scores (B, H, S)`` to the means, except where the step is ``padding``."""
    padding = Padding.of(padding)
    steps = state.steps + 1
    count = steps[:, None, None]
    change = torch.logaddexp((-1 / count).log1p(), scores - state.log_mean - count.log())
    log_mean = state.log_mean + change
    if padding.mask is None:
        return SlotMeans(log_mean, steps)
    return SlotMeans(
        torch.where(padding.mask[..., None], state.log_mean, log_mean),
        torch.where(padding.mask[:, 0], state.steps, steps),
    )
