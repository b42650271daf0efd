"""Cut sequences into consecutive blocks, reduce blocks, and restore the sequences.

Each sentence is cut by its own number of real steps: its blocks do not depend on padding or on the rest of the batch.
Shapes depend only on T, so that nothing here synchronises with the device.
"""

from functools import lru_cache
from typing import NamedTuple

import torch
from torch import Tensor

from .dtypes import accumulation_dtype

# Keeps rounding errors from moving a random size out of its bounds; far below one step.
INSIDE = 1 - 1e-6


class Blocks(NamedTuple):
    """The place of each step of a batch in M blocks of S places, filled from the first place on."""

    block: Tensor  # (B, T) int64, the block of a step; undefined at padding
    place: Tensor  # (B, T) int64, its index among all B M S places; B M S at padding
    padding_mask: Tensor  # (B, T) bool, True = padding
    sizes: Tensor  # (B, M) int64, the number of steps in a block; 0 if the sentence has fewer blocks
    capacity: int  # S


def block_counts(lengths: Tensor, num_blocks: int) -> Tensor:
    """The number of blocks of a sentence: ``num_blocks``, or for 0 ``(n^2 / 2)^(1/3)`` rounded, at most n.

    This minimises the number of scores in both levels, ``n^2 / m + m^2``.

    Args:
        lengths: int64 of any shape, the number n of real steps of each sentence; n = 0 has 1 block.
        num_blocks: 0 or more; a shorter sentence has n blocks of one step.

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

    The sizes of equal blocks differ by at most one step: the real step at position p of n is in block
    ``floor(p m / n)``. Random sizes are in ``[1, 2n/m]``, drawn from torch's generator of the mask's device.

    Args:
        padding_mask: ``(B, T)`` bool, True = padding, anywhere.
        num_blocks: blocks of a sentence; 0 = the optimum for its length.
        random: random sizes instead of equal ones.
    """
    lengths = (~padding_mask).sum(1)
    most, capacity = layout(padding_mask.shape[1], num_blocks, random)
    ends = (random_ends if random else equal_ends)(lengths, block_counts(lengths, num_blocks), most)
    return blocks_of(ends, padding_mask, capacity)


def cut_by_size(padding_mask: Tensor, block_size: int) -> Blocks:
    """Cut after every ``block_size`` real steps of ``padding_mask (B, T)``, True = padding. The last may be shorter."""
    steps = padding_mask.shape[1]
    lengths = (~padding_mask).sum(1, keepdim=True)
    full = torch.arange(1, -(-steps // block_size) + 1, device=padding_mask.device) * block_size
    return blocks_of(torch.minimum(full, lengths), padding_mask, min(block_size, steps))


def cut_to_shrink(padding_mask: Tensor, block_size: int) -> Blocks:
    """Cut n real steps into ``ceil(n / block_size)`` equal blocks of at most ``block_size`` steps.

    With equal blocks no short last block weighs as much as a full one in the means of the next layers.

    Args:
        padding_mask: ``(B, T)`` bool, True = padding, anywhere.
        block_size: 1 or more.
    """
    steps = padding_mask.shape[1]
    lengths = (~padding_mask).sum(1)
    counts = ((lengths + block_size - 1) // block_size).clamp(min=1)
    ends = equal_ends(lengths, counts, max(1, -(-steps // block_size)))
    return blocks_of(ends, padding_mask, min(block_size, steps))


@lru_cache(maxsize=4096)
def layout(steps: int, num_blocks: int, random: bool) -> tuple[int, int]:
    """The largest number of blocks and the largest block of any sentence of at most ``steps`` steps."""
    lengths = torch.arange(1, steps + 1, device="cpu")
    counts = block_counts(lengths, num_blocks)
    if random:
        largest = torch.minimum(2 * lengths // counts, lengths - counts + 1)
    else:
        largest = (lengths + counts - 1) // counts
    return int(counts.max()), int(largest.max())


def equal_ends(lengths: Tensor, counts: Tensor, most: int) -> Tensor:
    """The end positions of ``most`` blocks, exclusive, for ``lengths (B,)`` and ``counts (B,)``: ``(B, M)``."""
    lengths, counts = lengths[:, None], counts[:, None]
    following = torch.arange(1, most + 1, device=lengths.device)
    return torch.minimum((following * lengths + counts - 1) // counts, lengths)


def random_ends(lengths: Tensor, counts: Tensor, most: int) -> Tensor:
    """As :func:`equal_ends`, with sizes in ``[1, 2n/m]`` that sum to n.

    Each size is n/m plus the deviation of a uniform random number from the mean of all of them, scaled to the width of
    the bounds or less, so that every size is within them. The ends are rounded, not the sizes, so that the sizes sum
    to n; a size within integer bounds stays within them.
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
    """The blocks that end before the positions ``ends (B, M)`` of the real steps."""
    batch, most = ends.shape
    position = ((~padding_mask).cumsum(1) - 1).clamp(min=0)
    block = torch.searchsorted(ends, position, right=True).clamp(max=most - 1)
    sizes = ends.diff(dim=1, prepend=torch.zeros_like(ends[:, :1]))
    row = torch.arange(batch, device=ends.device)[:, None] * most + block
    place = row * capacity + position - (ends - sizes).gather(1, block)
    place = place.masked_fill(padding_mask, batch * most * capacity)
    return Blocks(block=block, place=place, padding_mask=padding_mask, sizes=sizes, capacity=capacity)


def to_blocks(x: Tensor, blocks: Blocks) -> Tensor:
    """``(B, H, T, D)`` to ``(B M, H, S, D)``; empty places are zero."""
    _, heads, _, size = x.shape
    by_step = x.transpose(1, 2).reshape(-1, heads, size)
    places = blocks.sizes.numel() * blocks.capacity
    # All padding goes to an extra last place, which is removed.
    by_place = x.new_zeros(places + 1, heads, size).index_copy(0, blocks.place.flatten(), by_step)
    return by_place[:-1].view(-1, blocks.capacity, heads, size).transpose(1, 2)


def from_blocks(x: Tensor, blocks: Blocks) -> Tensor:
    """``(B M, H, S, D)`` back to ``(B, H, T, D)``, with zeros at padding."""
    _, heads, _, size = x.shape
    by_place = x.transpose(1, 2).reshape(-1, heads, size)
    place = blocks.place.clamp(max=by_place.shape[0] - 1)
    by_step = by_place.index_select(0, place.flatten()).view(*place.shape, heads, size)
    return by_step.masked_fill(blocks.padding_mask[:, :, None, None], 0).transpose(1, 2)


def reduce_blocks(x: Tensor, blocks: Blocks, reduce: str = "mean") -> Tensor:
    """The "mean" or "sum" of each block of ``x (B M, H, S, D)``, which is zero in empty places: ``(B M, H, D)``.

    In the dtype of ``x``; summed in fp32 if it is half precision.
    """
    summed = x.sum(2, dtype=accumulation_dtype(x))
    if reduce == "mean":
        summed = summed / blocks.sizes.clamp(min=1).view(-1, 1, 1)
    return summed.to(x.dtype)


def block_means(x: Tensor, blocks: Blocks) -> tuple[Tensor, Tensor]:
    """The mean of each block.

    Args:
        x: ``(T, B, C)``.
        blocks: at most M per sentence; padding is in none.

    Returns:
        ``(M, B, C)`` in the dtype of ``x``, summed in fp32 if it is half precision, and the padding mask ``(B, M)``,
        True = no such block in this sentence. A sentence without real steps has one block, which is zero.
    """
    means = reduce_blocks(to_blocks(x.transpose(0, 1)[:, None], blocks), blocks)
    return means.view(*blocks.sizes.shape, -1).transpose(0, 1), empty_blocks(blocks)


def empty_places(blocks: Blocks) -> Tensor:
    """``(B, M, S)`` bool, True = no step here, but False in the first place: a softmax over nothing is NaN."""
    place = torch.arange(blocks.capacity, device=blocks.sizes.device)
    return place >= blocks.sizes.clamp(min=1)[:, :, None]


def empty_blocks(blocks: Blocks) -> Tensor:
    """``(B, M)`` bool, True = no step in this block, but False for the first one, for the same reason."""
    number = torch.arange(blocks.sizes.shape[1], device=blocks.sizes.device)
    return (blocks.sizes == 0) & (number > 0)
