"""Generation form: one number for each channel, one step at a time."""

from typing import NamedTuple

import torch
from torch import Tensor

from ..padding import PaddingLike
from .shared import without_padding


class RecurrentState(NamedTuple):
    """The state after the steps so far."""

    h: Tensor  # (B, C), fp32 if the inputs are half precision


def linear_recurrence_step(
    f: Tensor, b: Tensor, state: RecurrentState | None, *, padding: PaddingLike = None
) -> tuple[Tensor, RecurrentState]:
    """One step of :func:`.naive.linear_recurrence`: its arguments with T = 1; the state is None before the first.

    Returns:
        ``(1, B, C)`` in the dtype of ``b``, and the state after this step.
    """
    factors, h = without_padding(f, b, padding)
    if state is not None:
        h = torch.addcmul(h, factors, state.h)
    return h.to(b.dtype), RecurrentState(h.squeeze(0))
