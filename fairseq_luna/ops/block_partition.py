"""Cutting sequences into consecutive blocks, and putting them back.

Every sentence is cut by its own number of real steps, so that neither the padding nor the other sentences of a
batch change where its blocks begin. The shapes depend on T alone: nothing here waits for the device.
"""

from functools import lru_cache
from typing import NamedTuple

import torch
from torch import Tensor

# Keeps a random size, a float, from leaving its bounds by a rounding error; far below one step.
INSIDE = 1 - 1e-6


class Blocks(NamedTuple):
    """Where each step of a batch goes: M blocks of S places each, filled from the first place on."""

    block: Tensor  # (B, T) int64, the block of a step; without meaning where the step is padding
    place: Tensor  # (B, T) int64, its place among all B M S of them; B M S where the step is padding
    padding_mask: Tensor  # (B, T) bool, True = padding
    sizes: Tensor  # (B, M) int64, how many steps a block holds: 0 where a sentence has fewer than M blocks
    capacity: int  # S


def block_counts(lengths: Tensor, num_blocks: int) -> Tensor:
    """How many blocks a sentence has: ``num_blocks``, or ``(n^2 / 2)^(1/3)`` rounded for 0, in ``[1, n]``.

    ``n^2 / m + m^2`` scores, those within blocks and those among them, are fewest at this optimum.

    Args:
        lengths: int64 of any shape, the real steps n of each sentence; the count for n = 0 is 1.
        num_blocks: 0 or more; a sentence shorter than this has blocks of one step.

    Returns:
        int64 in the shape of ``lengths``.
    """
    if num_blocks:
        counts = torch.full_like(lengths, num_blocks)
    else:
        counts = (lengths.double().square() / 2).pow(1 / 3).round().long()
    return torch.minimum(counts, lengths).clamp(min=1)


def cut_by_number(padding_mask: Tensor, num_blocks: int, *, random: bool = False) -> Blocks:
    """Cut each sentence into :func:`block_counts` blocks.

    Equal blocks differ by at most one step: the real step at position p of n is in block ``floor(p m / n)``. Random
    ones have sizes in ``[1, 2n/m]``, drawn from torch's generator of the mask's device.

    Args:
        padding_mask: ``(B, T)`` bool, True = padding, anywhere.
        num_blocks: blocks of a sentence; 0 = the optimum for its length.
        random: draw the sizes.
    """
    lengths = (~padding_mask).sum(1)
    most, capacity = layout(padding_mask.shape[1], num_blocks, random)
    ends = (random_ends if random else equal_ends)(lengths, block_counts(lengths, num_blocks), most)
    return blocks_of(ends, padding_mask, capacity)


def cut_by_size(padding_mask: Tensor, block_size: int) -> Blocks:
    """Cut after every ``block_size`` real steps of ``padding_mask (B, T)``, True = padding; the rest is a block too."""
    steps = padding_mask.shape[1]
    lengths = (~padding_mask).sum(1, keepdim=True)
    full = torch.arange(1, -(-steps // block_size) + 1, device=padding_mask.device) * block_size
    return blocks_of(torch.minimum(full, lengths), padding_mask, min(block_size, steps))


@lru_cache(maxsize=4096)
def layout(steps: int, num_blocks: int, random: bool) -> tuple[int, int]:
    """The most blocks that a sentence of at most ``steps`` steps has, and the most steps in a block."""
    lengths = torch.arange(1, steps + 1, device="cpu")
    counts = block_counts(lengths, num_blocks)
    if random:
        largest = torch.minimum(2 * lengths // counts, lengths - counts + 1)
    else:
        largest = (lengths + counts - 1) // counts
    return int(counts.max()), int(largest.max())


def equal_ends(lengths: Tensor, counts: Tensor, most: int) -> Tensor:
    """The position before which each of ``most`` blocks ends, ``(B, M)``, for ``lengths (B,)`` and ``counts (B,)``."""
    lengths, counts = lengths[:, None], counts[:, None]
    following = torch.arange(1, most + 1, device=lengths.device)
    return torch.minimum((following * lengths + counts - 1) // counts, lengths)


def random_ends(lengths: Tensor, counts: Tensor, most: int) -> Tensor:
    """As :func:`equal_ends`, with sizes in ``[1, 2n/m]`` that sum to n.

    Each size is n/m and a uniform draw's deviation from the mean of the draws, scaled to the width of the bounds, or
    less where a draw would leave them. The ends are rounded, not the sizes, so that they still sum to n; a size
    between whole bounds stays between them.
    """
    lengths, counts = lengths[:, None], counts[:, None]
    number = torch.arange(1, most + 1, device=lengths.device)
    unused = number > counts
    mean = lengths.double() / counts
    draws = torch.rand(lengths.shape[0], most, dtype=mean.dtype, device=mean.device).masked_fill(unused, 0)
    deviation = (draws - draws.sum(1, keepdim=True) / counts).masked_fill(unused, 0)
    upwards = (2 * lengths // counts - mean) / deviation.amax(1, keepdim=True).clamp(min=0.5)
    downwards = (mean - 1) / -deviation.amin(1, keepdim=True).clamp(max=-0.5)
    scale = torch.minimum(upwards, downwards).clamp(min=0) * INSIDE
    ends = (mean + scale * deviation).cumsum(1).round().long()
    return torch.where(number >= counts, lengths, ends)


def blocks_of(ends: Tensor, padding_mask: Tensor, capacity: int) -> Blocks:
    """The blocks that end before the positions ``ends (B, M)``, counted among the real steps."""
    batch, most = ends.shape
    position = ((~padding_mask).cumsum(1) - 1).clamp(min=0)
    block = torch.searchsorted(ends, position, right=True).clamp(max=most - 1)
    sizes = ends.diff(dim=1, prepend=torch.zeros_like(ends[:, :1]))
    row = torch.arange(batch, device=ends.device)[:, None] * most + block
    place = row * capacity + position - (ends - sizes).gather(1, block)
    place = place.masked_fill(padding_mask, batch * most * capacity)
    return Blocks(block=block, place=place, padding_mask=padding_mask, sizes=sizes, capacity=capacity)


def to_blocks(x: Tensor, blocks: Blocks) -> Tensor:
    """``(B, H, T, D)`` to ``(B M, H, S, D)``; a place that no step fills is zero."""
    _, heads, _, size = x.shape
    by_step = x.transpose(1, 2).reshape(-1, heads, size)
    places = blocks.sizes.numel() * blocks.capacity
    # All padding goes to one place after the last, which is cut off.
    by_place = x.new_zeros(places + 1, heads, size).index_copy(0, blocks.place.flatten(), by_step)
    return by_place[:-1].view(-1, blocks.capacity, heads, size).transpose(1, 2)


def from_blocks(x: Tensor, blocks: Blocks) -> Tensor:
    """``(B M, H, S, D)`` back to ``(B, H, T, D)``, with zeros at the padding."""
    _, heads, _, size = x.shape
    by_place = x.transpose(1, 2).reshape(-1, heads, size)
    place = blocks.place.clamp(max=by_place.shape[0] - 1)
    by_step = by_place.index_select(0, place.flatten()).view(*place.shape, heads, size)
    return by_step.masked_fill(blocks.padding_mask[:, :, None, None], 0).transpose(1, 2)
