"""Conversion from fairseq's time-first layout to the layout of the ops, and back."""

import torch
from torch import Tensor


def split_heads(x: Tensor, num_heads: int) -> Tensor:
    """``(T, B, C)`` to ``(B, H, T, C / H)``."""
    steps, batch, channels = x.shape
    return x.view(steps, batch, num_heads, channels // num_heads).permute(1, 2, 0, 3)


def merge_heads(x: Tensor) -> Tensor:
    """``(B, H, T, D)`` to ``(T, B, H D)``."""
    batch, heads, steps, size = x.shape
    return x.permute(2, 0, 1, 3).reshape(steps, batch, heads * size)


def mask_of(x: Tensor, padding_mask: Tensor | None) -> Tensor:
    """``padding_mask (B, T)``, or a mask without padding for ``x (T, B, C)``."""
    if padding_mask is not None:
        return padding_mask
    steps, batch = x.shape[:2]
    return x.new_zeros(batch, steps, dtype=torch.bool)
