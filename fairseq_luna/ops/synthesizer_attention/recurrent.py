"""Generation: one step at a time, from the values of the steps before."""

from typing import NamedTuple

import torch
from torch import Tensor

from ..dropout import drop
from ..dtypes import accumulation_dtype, full_precision
from ..real_steps import pack_left
from .fused import weighted_sums


class Values(NamedTuple):
    """The values of the real steps so far, by position. N is the number of all steps."""

    v: Tensor  # (B, H, N, D); undefined, but finite, from ``steps`` on
    steps: Tensor | None  # (B,) int64, the number of real steps; None = N in all rows


def initial_values(v: Tensor) -> Values:
    """The state before the first step, for values ``(B, H, any number, D)``."""
    return Values(v[:, :, :0], None)


def next_positions(state: Values, steps: int, padding_mask: Tensor | None = None) -> Tensor:
    """The positions of the next ``steps``, whose scores they read: ``(B or 1, steps)`` int64.

    ``padding_mask (B, steps)`` bool, True = padding, which gets some position in range.
    """
    device = state.v.device
    before = torch.full((1,), state.v.shape[2], device=device) if state.steps is None else state.steps
    if padding_mask is None:
        return before[:, None] + torch.arange(steps, device=device)
    return before[:, None] + ((~padding_mask).cumsum(1) - 1).clamp(min=0)


def synthesizer_attention_step(
    scores: Tensor,
    v: Tensor,
    state: Values,
    *,
    padding_mask: Tensor | None = None,
    dropout_p: float = 0.0,
) -> tuple[Tensor, Values]:
    """The next steps of causal :func:`.naive.synthesizer_attention`.

    Args:
        scores: ``(B or 1, H, T, N + T)``, of each new step at its position, :func:`next_positions`, with all positions.
        v: ``(B, H, T, D)``, usually T = 1.
        state: of the steps before, N.
        padding_mask: ``(B, T)`` bool, True = padding: neither seen nor counted.
        dropout_p: dropout probability of the weights.

    Returns:
        ``(B, H, T, D)`` in the dtype of ``v``, zero at padding; and the state after these steps.
    """
    dtype, steps = accumulation_dtype(v), v.shape[2]
    of_steps = next_positions(state, steps, padding_mask)
    state = _with_steps(state, v, padding_mask)
    places = torch.arange(state.v.shape[2], device=v.device)
    with full_precision(v):
        scores = scores.to(dtype).masked_fill((places > of_steps[..., None])[:, None], -torch.inf)
        y = weighted_sums(drop(scores.softmax(-1), dropout_p), state.v.to(dtype)).to(v.dtype)
    return y if padding_mask is None else y.masked_fill(padding_mask[:, None, :, None], 0), state


def _with_steps(state: Values, v: Tensor, padding_mask: Tensor | None) -> Values:
    before, new = state.v.shape[2], v.shape[2]
    values = torch.cat([state.v, pack_left(v, padding_mask)], dim=2)
    if state.steps is None and padding_mask is None:
        return Values(values, None)
    steps = torch.full(v.shape[:1], before, device=v.device) if state.steps is None else state.steps
    # The new ones follow the real ones.
    place = torch.arange(before + new, device=v.device)
    read = torch.where(place < steps[:, None], place, (before + place - steps[:, None]).clamp(max=before + new - 1))
    values = values.gather(2, read[:, None, :, None].expand_as(values))
    return Values(values, steps + (new if padding_mask is None else (~padding_mask).sum(1)))
