"""Generation: one step at a time, from the values of the steps before."""

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from ..dropout import drop
from ..dtypes import accumulation_dtype, full_precision
from ..padding import Padding, PaddingLike
from .fused import weighted_sums


class Values(NamedTuple):
    """The values of the real steps so far, by position. N is the number of all steps."""

    v: Tensor  # (B, H, N, D); undefined, but finite, from ``steps`` on
    steps: Tensor | None  # (B,) int64, the number of real steps; None = N in all rows


class ValuesWithRoom(Values):
    """:class:`Values` with N places, of which the first ``steps`` are in use."""


def with_room(state: Values, places: int) -> ValuesWithRoom:
    """The same state with so many ``places``, which no step changes."""
    steps = state.steps
    if steps is None:
        steps = torch.full(state.v.shape[:1], state.v.shape[2], device=state.v.device)
    return ValuesWithRoom(F.pad(state.v, (0, 0, 0, max(0, places - state.v.shape[2]))), steps)


def columns_of_next(state: Values | None) -> int:
    """The number of positions that the scores of the next step are for."""
    if state is None:
        return 1
    return state.v.shape[2] + (not isinstance(state, ValuesWithRoom))


def next_positions(state: Values | None, like: Tensor) -> Tensor:
    """The position of the next step, whose scores it reads: ``(B or 1, 1)`` int64 on the device of ``like``."""
    if state is not None and state.steps is not None:
        return state.steps[:, None]
    return torch.full((1, 1), 0 if state is None else state.v.shape[2], device=like.device)


def synthesizer_attention_step(
    scores: Tensor,
    v: Tensor,
    state: Values | None,
    *,
    padding: PaddingLike = None,
    dropout_p: float = 0.0,
) -> tuple[Tensor, Values]:
    """One step of causal :func:`.naive.synthesizer_attention`; the state is None before the first.

    Args:
        scores: ``(B or 1, H, 1, columns)``, of the step at its position, :func:`next_positions`, with the first
            :func:`columns_of_next` positions.
        v, padding, dropout_p: as there, with T = 1.
        state: of the N steps before.

    Returns:
        ``(B, H, 1, D)`` in the dtype of ``v``, zero at padding; and the state after this step.
    """
    padding = Padding.of(padding)
    dtype, position = accumulation_dtype(v), next_positions(state, v)
    state = _with_step(state, v, padding)
    places = torch.arange(state.v.shape[2], device=v.device)
    with full_precision(v):
        scores = scores.to(dtype).masked_fill((places > position)[:, None, None], -torch.inf)
        y = weighted_sums(drop(scores.softmax(-1), dropout_p), state.v.to(dtype)).to(v.dtype)
    return padding.zero(y), state


def _with_step(state: Values | None, v: Tensor, padding: Padding) -> Values:
    v = padding.zero(v)
    if isinstance(state, ValuesWithRoom):
        assert state.steps is not None
        newest = torch.arange(state.v.shape[2], device=v.device) == state.steps[:, None]
        filled = state.steps + (1 if padding.mask is None else ~padding.mask[:, 0])
        return ValuesWithRoom(torch.where(newest[:, None, :, None], v, state.v), filled)
    before = v[:, :, :0] if state is None else state.v
    steps = None if state is None else state.steps
    values = torch.cat([before, v], dim=2)
    if steps is None and padding.mask is None:
        return Values(values, None)
    if steps is None:
        steps = torch.full(v.shape[:1], before.shape[2], device=v.device)
    newest = torch.arange(values.shape[2], device=v.device) == steps[:, None]
    values = torch.where(newest[:, None, :, None], v, values)
    return Values(values, steps + (1 if padding.mask is None else ~padding.mask[:, 0]))
