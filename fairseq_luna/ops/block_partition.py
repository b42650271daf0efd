"""Cut sequences into consecutive blocks, reduce blocks, and restore the sequences.

Each sentence is cut by its own number of real steps: its blocks do not depend on padding or on the rest of the batch.
Shapes depend only on T, so that nothing here synchronises with the device.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from .dtypes import full_precision
from .padding import Padding, PaddingLike, computed_once

# A factor that keeps rounding errors from moving a random size out of its bounds; the difference is far below one step.
INSIDE = 1 - 1e-6


@dataclass(frozen=True, kw_only=True, eq=False)
class Blocks:
    """A batch cut into M blocks of S places, filled from the first place on.

    Layers gather *rows*: step t of sentence b is row ``t B + b``, place s of its block i is row ``(b M + i) S + s``,
    and this block itself is row ``b M + i``.
    """

    block: Tensor  # (B, T) int64, the block of a step; undefined at padding
    padding_mask: Tensor  # (B, T) bool, True = padding
    sizes: Tensor  # (B, M) int64, the number of steps in a block; 0 if the sentence has fewer blocks
    capacity: int  # S
    step_rows: Tensor  # (B M S) int64, the step in each place; in an empty one the first step of the sentence
    place_rows: Tensor  # (T B) int64, the place of each step; at padding the place of another step
    block_rows: Tensor  # (T B) int64, the block of each step; at padding the block of another step
    previous_rows: Tensor  # (T B) int64, the block before the block of each step; undefined in the first block
    has_previous: Tensor  # (T, B, 1), 0 in the first block, otherwise 1
    summing: Tensor  # (B M, 1, S), 1/P in places of steps, 0 in empty ones; P is a power of two, at least S
    filled: Tensor  # (B M, 1, 1), n/P for a block of n steps, but not 0
    # Empty places and blocks are padding, except the first of each, because a softmax over nothing is NaN.
    empty_places: Padding  # of (B M, S)
    empty_blocks: Padding  # of (B, M)
    derived: dict[Any, Any] = field(default_factory=dict, repr=False)  # see padding.computed_once


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


def cut_by_number(
    padding: PaddingLike, num_blocks: int, *, random: bool = False, dtype: torch.dtype = torch.float32
) -> Blocks:
    """Cut each sentence into :func:`block_counts` blocks.

    The sizes of equal blocks differ by at most one step: the real step at position p of n is in block
    ``floor(p m / n)``. Random sizes are in ``[1, 2n/m]``, drawn from torch's generator of the mask's device.

    Args:
        padding: a mask ``(B, T)`` bool, True = padding, anywhere.
        num_blocks: blocks of a sentence; 0 = the optimum for its length.
        random: random sizes instead of equal ones.
        dtype: the dtype of the sequences, for the factors.
    """
    padding = Padding.of(padding)
    lengths = padding.lengths
    most, capacity = layout(padding.existing_mask.shape[1], num_blocks, random)
    ends = (random_ends if random else equal_ends)(lengths, block_counts(lengths, num_blocks), most)
    return blocks_of(ends, padding, capacity, dtype)


def cut_by_size(padding: PaddingLike, block_size: int, *, dtype: torch.dtype = torch.float32) -> Blocks:
    """Cut after every ``block_size`` real steps. The last block may be shorter.

    Args:
        padding: as in :func:`cut_by_number`.
        block_size: 1 or more.
        dtype: as in :func:`cut_by_number`.
    """
    padding = Padding.of(padding)
    steps = padding.existing_mask.shape[1]
    lengths = padding.lengths[:, None]
    full = torch.arange(1, max(1, -(-steps // block_size)) + 1, device=lengths.device) * block_size
    return blocks_of(torch.minimum(full, lengths), padding, min(block_size, steps), dtype)


def cut_to_shrink(padding: PaddingLike, block_size: int, *, dtype: torch.dtype = torch.float32) -> Blocks:
    """Cut n real steps into ``ceil(n / block_size)`` equal blocks of at most ``block_size`` steps.

    With equal blocks no short last block weighs as much as a full one in the means of the next layers.

    Args:
        padding: as in :func:`cut_by_number`.
        block_size: 1 or more.
        dtype: as in :func:`cut_by_number`.
    """
    padding = Padding.of(padding)
    steps = padding.existing_mask.shape[1]
    lengths = padding.lengths
    counts = ((lengths + block_size - 1) // block_size).clamp(min=1)
    ends = equal_ends(lengths, counts, max(1, -(-steps // block_size)))
    return blocks_of(ends, padding, min(block_size, steps), dtype)


@computed_once
def same_blocks(
    padding: Padding, cut: Callable[..., Blocks], number: int, dtype: torch.dtype = torch.float32
) -> Blocks:
    """``cut(padding, number)``, the same object for all layers that get the same padding."""
    return cut(padding, number, dtype=dtype)


def layout(steps: int, num_blocks: int, random: bool) -> tuple[int, int]:
    """The largest number of blocks and the largest block of any sentence of at most ``steps`` steps."""

    def largest(length: int, count: int) -> int:
        return min(2 * length // count, length - count + 1) if random else -(-length // count)

    limit = num_blocks or round((steps**2 / 2) ** (1 / 3))
    # No min(), and the number 1 where a size is known to be 1: torch.compile would carry both expressions through all
    # shapes and strides, and inductor cannot order strides with a minimum in them.
    most = max(1, steps if steps <= limit else limit)
    if num_blocks or most == 1:
        size = largest(steps, most)
        return most, 1 if size == 1 else size
    # The longest sentence that has one block less may have a larger one.
    longest = int(math.sqrt((2 * most - 1) ** 3 / 4))
    return most, max(largest(steps, most), largest(longest, most - 1))


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


def blocks_of(ends: Tensor, padding: Padding, capacity: int, dtype: torch.dtype) -> Blocks:
    """The blocks that end before the positions ``ends (B, M)`` of the real steps."""
    (batch, most), device = ends.shape, ends.device
    position = padding.positions
    block = torch.searchsorted(ends, position, right=True).clamp(max=most - 1)
    starts = F.pad(ends[:, :-1], (1, 0))
    sizes = ends - starts
    sentence = torch.arange(batch, device=device)[:, None]
    block_rows = sentence * most + block
    place_rows = block_rows * capacity + position - starts.gather(1, block)

    # All padding goes to an extra last place, which is removed.
    places = batch * most * capacity
    step_rows = F.pad(sentence.expand(-1, most * capacity).flatten(), (0, 1)).index_copy(
        0,
        place_rows.masked_fill(padding.existing_mask, places).t().flatten(),
        torch.arange(block.numel(), device=device),
    )[:-1]

    number, some = torch.arange(capacity, device=device), sizes.clamp(min=1).flatten()[:, None]
    share = share_of_place(capacity, device)
    filled = some.to(dtype) * share
    return Blocks(
        block=block,
        padding_mask=padding.existing_mask,
        sizes=sizes,
        capacity=capacity,
        step_rows=step_rows,
        place_rows=place_rows.t().flatten(),
        block_rows=block_rows.t().flatten(),
        previous_rows=(block_rows - 1).clamp(min=0).t().flatten(),
        has_previous=(block > 0).to(dtype).t()[:, :, None],
        summing=(number < sizes.flatten()[:, None]).to(dtype)[:, None] * share,
        filled=filled[:, None],
        empty_places=Padding(number >= some),
        empty_blocks=Padding((sizes == 0) & (torch.arange(most, device=device) > 0)),
    )


def share_of_place(capacity: int, device: torch.device) -> float | Tensor:
    """1/P. A sum times this is in the range of its summands, and as a power of two it is exact in half precision."""
    if torch.compiler.is_compiling():  # the number of bits would be a constant of the graph
        places = torch.full((), capacity, dtype=torch.float64, device=device)
        return torch.exp2(-torch.log2(places).ceil())
    return 0.5 ** (capacity - 1).bit_length()


def to_blocks(*sequences: Tensor, blocks: Blocks) -> tuple[Tensor, ...]:
    """Each ``(B, H, T, D)`` to ``(B M, H, S, D)``; empty places are undefined, but finite."""
    heads, size = sequences[0].shape[1], sequences[0].shape[3]
    by_step = [x.permute(2, 0, 1, 3).reshape(blocks.block.numel(), heads * size) for x in sequences]
    together = by_step[0][None] if len(by_step) == 1 else torch.stack(by_step)
    by_place = together.index_select(1, blocks.step_rows)
    return by_place.view(len(by_step), blocks.sizes.numel(), blocks.capacity, heads, size).transpose(2, 3).unbind()


def from_blocks(x: Tensor, blocks: Blocks) -> Tensor:
    """``(B M, H, S, D)`` back to ``(B, H, T, D)``; undefined, but finite, at padding."""
    heads, size = x.shape[1], x.shape[3]
    by_place = x.transpose(1, 2).reshape(x.shape[0] * x.shape[2], heads * size)
    by_step = by_place.index_select(0, blocks.place_rows)
    return by_step.view(*blocks.block.t().shape, heads, size).permute(1, 2, 0, 3)


def reduce_blocks(x: Tensor, blocks: Blocks, reduce: str = "mean") -> Tensor:
    """The "mean" or "sum" of each block of ``x (B M, H, S, D)``: ``(B, H, M, D)``, in the dtype of ``x``."""
    _, heads, _, size = x.shape
    with full_precision(x):  # and a product of half precision adds in fp32
        total = blocks.summing.to(x.dtype) @ x.transpose(1, 2).flatten(2)
    reduced = total / (blocks.filled.to(x.dtype) if reduce == "mean" else share_of_place(blocks.capacity, x.device))
    return reduced.view(*blocks.sizes.shape, heads, size).transpose(1, 2)


def gather_block_of_each_step(x: Tensor, blocks: Blocks, *, causal: bool = False) -> Tensor:
    """For each step the vector of its block in ``x (B, M, C)``; if ``causal``, of the block before, 0 in the first.

    Returns:
        ``(T, B, C)``; undefined, but finite, at padding.
    """
    rows = blocks.previous_rows if causal else blocks.block_rows
    read = x.flatten(0, 1).index_select(0, rows).view(*blocks.block.t().shape, x.shape[2])
    return read * blocks.has_previous.to(x.dtype) if causal else read


def block_means(x: Tensor, blocks: Blocks) -> tuple[Tensor, Tensor]:
    """The mean of each block.

    Args:
        x: ``(T, B, C)``.
        blocks: at most M per sentence; padding is in none.

    Returns:
        ``(M, B, C)`` in the dtype of ``x``, summed in fp32 if it is half precision, and the padding mask ``(B, M)``,
        True = no such block in this sentence. A sentence without real steps has one block, which is zero.
    """
    (by_block,) = to_blocks(x.transpose(0, 1)[:, None], blocks=blocks)
    return reduce_blocks(by_block, blocks)[:, 0].transpose(0, 1), blocks.empty_blocks.existing_mask
