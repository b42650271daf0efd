"""Heads: their number, and conversion from fairseq's time-first layout to the layout of the ops, and back."""

import torch
from torch import Tensor

from ..usage_error import ArgumentError


def check_heads(num_heads: int, embed_dim: int, *, name: str = "num_heads") -> None:
    """Raise UsageError if ``num_heads``, an argument called ``name``, does not divide ``embed_dim``."""
    if num_heads < 1 or embed_dim % num_heads:
        raise ArgumentError(name, num_heads, f"must be 1 or more and divide embed_dim {embed_dim}")


def beams_of(batch: int, sentences: int) -> int:
    """How many consecutive rows of a ``batch`` read each of its ``sentences``."""
    return batch // sentences if sentences else 1


def split_heads(x: Tensor, num_heads: int, *, beams: int = 1) -> Tensor:
    """``(T, B, C)`` to ``(B / beams, H, T beams, C / H)``.

    Consecutive rows of the batch that are ``beams`` of one sentence become steps of it, to read the same keys at once.
    """
    steps, batch, channels = x.shape
    if beams > 1:
        return x.view(steps, -1, beams, num_heads, channels // num_heads).permute(1, 3, 0, 2, 4).flatten(2, 3)
    return x.view(steps, batch, num_heads, channels // num_heads).permute(1, 2, 0, 3)


def merge_heads(x: Tensor, *, beams: int = 1) -> Tensor:
    """``(B / beams, H, T beams, D)`` to ``(T, B, H D)``."""
    if beams > 1:
        x = beams_apart(x, beams)
    batch, heads, steps, size = x.shape
    return x.permute(2, 0, 1, 3).reshape(steps, batch, heads * size)


def beams_apart(x: Tensor, beams: int) -> Tensor:
    """``(B / beams, H, T beams, D)`` to ``(B, H, T, D)``."""
    return x.unflatten(2, (-1, beams)).permute(0, 3, 1, 2, 4).flatten(0, 1)


def mask_of(x: Tensor, padding_mask: Tensor | None) -> Tensor:
    """``padding_mask (B, T)``, or a mask without padding for ``x (T, B, C)``."""
    if padding_mask is not None:
        return padding_mask
    steps, batch = x.shape[:2]
    return x.new_zeros(batch, steps, dtype=torch.bool)


def joined_padding(
    memory: Tensor, memory_padding_mask: Tensor | None, query: Tensor, padding_mask: Tensor | None
) -> Tensor | None:
    """The padding mask of memory and query concatenated: ``(B, S + T)``, or None if neither is padded."""
    if memory_padding_mask is None and padding_mask is None:
        return None
    return torch.cat([mask_of(memory, memory_padding_mask), mask_of(query, padding_mask)], dim=1)
