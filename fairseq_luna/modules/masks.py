"""The check of padding masks."""

import torch
from torch import Tensor

from ..usage_error import UsageError


def check_mask(mask: Tensor | None, x: Tensor | None, name: str = "padding_mask") -> None:
    """Raise UsageError if ``mask``, the argument ``name``, is not the padding mask of ``x (T, B, C)``.

    That is ``(B, T)`` bool. Other dtypes would be read as something else, and other shapes broadcast. None is no
    padding; without ``x`` the mask is not read.
    """
    if mask is None or x is None:
        return
    steps, batch = x.shape[:2]
    if not isinstance(mask, Tensor):
        given = type(mask).__name__
    elif mask.dtype is torch.bool and mask.shape == (batch, steps):
        return
    else:
        given = f"{mask.dtype} {tuple(mask.shape)}"
    raise UsageError(
        f"{name} {given}: must be torch.bool {(batch, steps)}, (batch, steps), True where a step is padding"
    )
