"""Cutting a dimension into chunks of one size, and time into blocks of about equal length."""

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from .symbolic_sizes import missing_steps


def split_into_chunks(x: Tensor, size: int, *, dim: int, fill: float = 0) -> Tensor:
    """``x`` with dimension ``dim``, counted from the last, -1, cut into chunks of ``size``.

    The last chunk is filled up with ``fill``.

    Returns:
        ``x`` with the number of chunks and ``size`` in place of this dimension; a view if all chunks are full.
    """
    x = pad_end(x, missing_steps(x.shape[dim], size), dim=dim, fill=fill)
    return x.unflatten(dim, (x.shape[dim] // size, size))


def pad_end(x: Tensor, more: int, *, dim: int, fill: float = 0) -> Tensor:
    """``x`` with ``more`` entries of ``fill`` after the end of dimension ``dim``, counted from the last, -1."""
    for_any_length = torch.compiler.is_compiling() or isinstance(more, torch.SymInt)
    if for_any_length:
        # Eager torch keeps the layout of x if more is 0, but a graph for any length has one layout: contiguous.
        x = x.contiguous()
    return F.pad(x, [0, 0] * (-dim - 1) + [0, more], value=fill) if for_any_length or more else x


def block_count(k: Tensor, v: Tensor, block_length: int | None) -> int:
    """The number of blocks for keys ``k (B, H, T, D)`` and values ``v (B, H, T, E)``, at least 1.

    ``block_length`` is the largest number of steps in a block; None chooses it by shape.
    """
    return max(1, -(-k.shape[2] // (block_length or default_block_length(k.shape[2], k.shape[-1], v.shape[-1]))))


def default_block_length(steps: int, key_size: int, value_size: int) -> int:
    """The largest number of steps in a block: a power of two from 32 to 256, or all steps if they are about two blocks.

    At the root of D E the C x C products of a block cost about as much as its D x E state. One block needs no state.
    """
    balance = max(32**2, min(256**2, key_size * value_size))
    return max(1, steps) if steps**2 <= 4 * balance else 1 << round(math.log2(balance) / 2)


def cut_into_blocks(x: Tensor, blocks: int, length: int | None = None) -> Tensor:
    """``(B, H, T, D)`` to ``(B H blocks, C, D)``: the last block is filled with zeros.

    C is ``length``; None = the smallest possible, with which the last block has little padding.
    """
    length = max(1, -(-x.shape[2] // blocks)) if length is None else length
    whole = pad_end(x, blocks * length - x.shape[2], dim=-2)
    return whole.reshape(x.shape[0] * x.shape[1] * blocks, length, x.shape[-1])


def join_blocks(x: Tensor, blocks: int, like: Tensor) -> Tensor:
    """The inverse of :func:`cut_into_blocks`, to the steps of ``like (B, H, T, any size)``."""
    batch, heads, steps = like.shape[:3]
    whole = x.view(batch, heads, blocks * x.shape[1], x.shape[2])
    if not torch.compiler.is_compiling() and whole.shape[2] == steps:
        return whole  # a graph for any number of steps does not ask
    return whole[:, :, :steps]
