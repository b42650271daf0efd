"""Conversion between fairseq's time-first layout and the layout of the ops."""

from torch import Tensor


def split_heads(x: Tensor, num_heads: int) -> Tensor:
    """``(T, B, C)`` to ``(B, H, T, C / H)``."""
    steps, batch, channels = x.shape
    return x.view(steps, batch, num_heads, channels // num_heads).permute(1, 2, 0, 3)


def merge_heads(x: Tensor) -> Tensor:
    """``(B, H, T, D)`` to ``(T, B, H D)``."""
    batch, heads, steps, size = x.shape
    return x.permute(2, 0, 1, 3).reshape(steps, batch, heads * size)
