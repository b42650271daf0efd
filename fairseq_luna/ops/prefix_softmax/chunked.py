"""Training form: a C x C matrix of weights in each block of time, and the same recursively over the blocks."""

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from ..chunks import in_chunks
from ..dtypes import accumulation_dtype, full_precision
from ..padding import Padding, PaddingLike, computed_once


def prefix_softmax(
    scores: Tensor, v: Tensor, *, padding: PaddingLike = None, block_length: int | None = None
) -> Tensor:
    """Mean of the values up to each step, weighted by a softmax; specified by :func:`.naive.prefix_softmax`.

    With blocks of C steps it takes O(T (C + D)) memory instead of O(T^2). The largest score so far is subtracted
    before each exponential: none overflows, and one weight is always 1.

    Args:
        scores: ``(B, H, T)``; may have a wider dtype than ``v``.
        v: ``(B, H, T, D)``.
        padding: of the steps.
        block_length: C, at least 2; None chooses it by shape. It affects cost, not the result.

    Returns:
        ``(B, H, T, D)`` in the dtype of ``v``; sums are in fp32 if ``v`` is half precision, also under autocast.
    """
    padding = Padding.of(padding)
    length = block_length or default_block_length(v.shape[-1])
    with full_precision(v):
        if v.shape[2] <= length:
            mean = _mean_of_one_block(scores, v, padding)
        else:
            mean = _mean_of_blocks(scores, v, padding, length)
    return mean.to(v.dtype)


def default_block_length(value_size: int) -> int:
    """The power of two, from 32 to 128, at which a block's weights take about as much memory as its values."""
    return max(32, min(128, 1 << (value_size - 1).bit_length()))


def largest_so_far(scores: Tensor) -> Tensor:
    """Running maximum over the last axis, finite even if every score so far is -inf.

    It scales numerator and denominator by the same factor, so it needs no gradient.
    """
    with torch.no_grad():
        return scores.cummax(-1).values.clamp(min=torch.finfo(scores.dtype).min)


class Seen(NamedTuple):
    """What the steps of one block see, the same in all layers."""

    scores: Tensor  # (1 or B, 1, T, T), added to them: -inf at later steps, the lowest number at padding, otherwise 0
    values: Tensor | None  # (B, 1, T, 1), 0 at padding, otherwise 1; None without padding


@computed_once
def _seen(padding: Padding, steps: int, dtype: torch.dtype, device: torch.device) -> Seen:
    later = torch.full((1, 1, steps, steps), -torch.inf, dtype=dtype, device=device).triu_(1)
    if padding.mask is None:
        return Seen(later, None)
    # Not -inf at padding: a softmax over nothing is NaN. Before the first real step all values are 0.
    padded = later.new_zeros(padding.mask.shape).masked_fill_(padding.mask, torch.finfo(dtype).min)
    return Seen(later + padded[:, None, None], padding.real_factor(dtype))


def _mean_of_one_block(scores: Tensor, v: Tensor, padding: Padding) -> Tensor:
    """The sums and their denominator in one softmax: ``(B, H, T, D)``."""
    dtype = accumulation_dtype(v)
    seen = _seen(padding, v.shape[2], dtype, v.device)
    weights = (scores.to(dtype)[:, :, None] + seen.scores).softmax(-1)
    return weights @ (v.to(dtype) if seen.values is None else v * seen.values)


def _mean_of_blocks(scores: Tensor, v: Tensor, padding: Padding, length: int) -> Tensor:
    """:func:`_running_sums` over their denominator: ``(B, H, T, D)``."""
    dtype = accumulation_dtype(v)
    scores = scores.to(dtype)
    if padding.mask is not None:
        scores = scores.masked_fill(padding.mask[:, None, :], -torch.inf)
    # The denominator is the same sum over values of 1.
    sums = _running_sums(scores, F.pad(v.to(dtype), (0, 1), value=1), length)
    return sums[..., :-1] / nonzero(sums[..., -1:])


def nonzero(denominator: Tensor) -> Tensor:
    """``denominator`` with 1 instead of 0, its value before the first real step; later it is at least 1.

    Not ``clamp(min=1)``, which has no gradient at 1 itself from torch 2.15 on.
    """
    return denominator.masked_fill(denominator == 0, 1)


def _running_sums(scores: Tensor, x: Tensor, block_length: int) -> Tensor:
    """``sum over j <= t of exp(s_j - m_t) x_j``, m_t the largest score so far: ``(B, H, T, E)``, as ``x``.

    The sums at the block ends are running sums of T / C items, computed by recursion.
    """
    steps = scores.shape[-1]
    if steps <= block_length:
        return _sums_in_blocks(scores, largest_so_far(scores), x)
    scores = in_chunks(scores, block_length, dim=-1, fill=-torch.inf)
    largest = largest_so_far(scores.flatten(-2)).view(scores.shape)
    inside = _sums_in_blocks(scores, largest, in_chunks(x, block_length, dim=-2))

    # Block b starts from the sum at the end of block b - 1, the first block from 0.
    ends = largest[..., :-1, -1]
    before = F.pad(_running_sums(ends, inside[..., :-1, -1, :], block_length), (0, 0, 1, 0))
    decay = F.pad((ends[..., None] - largest[..., 1:, :]).exp(), (0, 0, 1, 0))
    total = inside + decay[..., None] * before[..., None, :]
    return total.flatten(2, 3)[:, :, :steps]


def _sums_in_blocks(scores: Tensor, largest: Tensor, x: Tensor) -> Tensor:
    """The same sums within each block: ``scores, largest (..., C)``, ``x (..., C, E)``."""
    length = scores.shape[-1]
    later = torch.ones(length, length, dtype=torch.bool, device=scores.device).triu(1)
    # Masked before the exponential: a later score may be large enough to overflow it.
    exponents = (scores[..., None, :] - largest[..., :, None]).masked_fill_(later, -torch.inf)
    return exponents.exp_() @ x
