"""Generation form: one number for each channel, one step at a time."""

from typing import NamedTuple

import torch
from torch import Tensor

from ..dtypes import accumulation_dtype
from .shared import without_padding


class RecurrentState(NamedTuple):
    """The state after the steps so far."""

    h: Tensor  # (B, C), fp32 if the inputs are half precision


def initial_recurrent_state(b: Tensor) -> RecurrentState:
    """The state before the first step, for ``b (any T, B, C)``."""
    return RecurrentState(b.new_zeros(b.shape[1:], dtype=accumulation_dtype(b)))


def linear_recurrence_step(
    f: Tensor, b: Tensor, state: RecurrentState, *, padding_mask: Tensor | None = None
) -> tuple[Tensor, RecurrentState]:
    """One or more steps of :func:`.naive.linear_recurrence`, continued from ``state``.

    Args:
        f, b: ``(T, B, C)``, usually T = 1.
        state: the state after the previous steps.
        padding_mask: ``(B, T)`` bool, True = padding.

    Returns:
        ``(T, B, C)`` in the dtype of ``b``, and the state after these steps.
    """
    dtype, states, h = b.dtype, [], state.h
    f, b = without_padding(f, b, padding_mask)
    for t in range(len(b)):
        h = torch.addcmul(b[t : t + 1], f[t : t + 1], h)
        states.append(h)
    out = h if len(states) == 1 else torch.cat(states)
    return out.to(dtype), RecurrentState(h.squeeze(0))
