"""The mean of the steps that are not padding."""

import torch
from torch import Tensor

from .dtypes import accumulation_dtype


def masked_mean(x: Tensor, padding_mask: Tensor) -> Tensor:
    """The mean over T of ``x (T, B, C)``, summed in fp32 for half precision.

    Args:
        x: ``(T, B, C)``.
        padding_mask: ``(B, T)`` bool, True = padding; a sentence of padding alone has a mean of 0.

    Returns:
        ``(B, C)`` in the dtype of ``x``.
    """
    real = ~padding_mask.t()[:, :, None]
    total = torch.where(real, x, 0).sum(0, dtype=accumulation_dtype(x))
    return (total / real.sum(0).clamp(min=1)).to(x.dtype)
