"""The form that trains: one C x C matrix of weights per block of time, and the same again over the blocks."""

import torch
import torch.nn.functional as F
from torch import Tensor

from ..dtypes import accumulation_dtype


def prefix_softmax(
    scores: Tensor, v: Tensor, *, padding_mask: Tensor | None = None, block_length: int | None = None
) -> Tensor:
    """Mean of the values so far, weighted by the softmax of the scores so far, for every step ``t``.

    The same function as :func:`.naive.prefix_softmax`, which states it. With blocks of C steps it takes
    O(T (C + D)) memory, where a weight for every pair of steps would take O(T^2). Every exponential is of a
    score less the largest score so far, so that no jump of the scores overflows, and one weight is always 1.

    Args:
        scores: ``(B, H, T)``; may be of a wider dtype than ``v``.
        v: ``(B, H, T, D)``.
        padding_mask: ``(B, T)`` bool, True = padding; None = nothing is padded.
        block_length: steps in a block, C, 2 or more; None chooses it by shape. It changes the cost, not the result.

    Returns:
        ``(B, H, T, D)`` in the dtype of ``v``; summed in fp32 when ``v`` is half precision.
    """
    dtype = accumulation_dtype(v)
    scores = scores.to(dtype)
    if padding_mask is not None:
        scores = scores.masked_fill(padding_mask[:, None, :], -torch.inf)
    # The denominator is a numerator too: the weighted sum of ones.
    values_and_ones = F.pad(v.to(dtype), (0, 1), value=1)
    sums = _running_sums(scores, values_and_ones, block_length or default_block_length(v.shape[-1]))
    return (sums[..., :-1] / one_for_none(sums[..., -1:])).to(v.dtype)


def one_for_none(denominator: Tensor) -> Tensor:
    """1 where the denominator is 0, before the first real step; else it is at least 1, the largest score's own weight.

    Not ``clamp(min=1)``: from torch 2.15 on that has no gradient where the value is 1 itself.
    """
    return denominator.masked_fill(denominator == 0, 1)


def default_block_length(value_size: int) -> int:
    """The power of two, from 32 to 128, at which a block's weights take about as much memory as its values."""
    return max(32, min(128, 1 << (value_size - 1).bit_length()))


def largest_so_far(scores: Tensor) -> Tensor:
    """Running maximum over the last axis, finite even where every score so far is -inf.

    Numerator and denominator are scaled alike by it, so it needs no gradient.
    """
    with torch.no_grad():
        return scores.cummax(-1).values.clamp(min=torch.finfo(scores.dtype).min)


def _running_sums(scores: Tensor, x: Tensor, block_length: int) -> Tensor:
    """``sum over j <= t of exp(s_j - m_t) x_j``, m_t the largest score so far; ``x (B, H, T, E)``, as the result.

    The sums at the ends of the blocks are running sums again, of T / C items: the function calls itself for
    them, as often as T can be divided by C.
    """
    steps = scores.shape[-1]
    if steps <= block_length:
        return _sums_in_blocks(scores, largest_so_far(scores), x)
    filling = -steps % block_length
    scores = F.pad(scores, (0, filling), value=-torch.inf)
    x = F.pad(x, (0, 0, 0, filling))
    blocks = (scores.shape[-1] // block_length, block_length)
    largest = largest_so_far(scores).unflatten(-1, blocks)
    inside = _sums_in_blocks(scores.unflatten(-1, blocks), largest, x.unflatten(2, blocks))

    # What block b takes over is the sum at the end of block b - 1; the first block takes over nothing.
    ends = largest[..., :-1, -1]
    before = F.pad(_running_sums(ends, inside[..., :-1, -1, :], block_length), (0, 0, 1, 0))
    decay = F.pad((ends[..., None] - largest[..., 1:, :]).exp(), (0, 0, 1, 0))
    total = inside + decay[..., None] * before[..., None, :]
    return total.flatten(2, 3)[:, :, :steps]


def _sums_in_blocks(scores: Tensor, largest: Tensor, x: Tensor) -> Tensor:
    """The same sums over the steps of one block alone: ``scores, largest (..., C)``, ``x (..., C, E)``."""
    length = scores.shape[-1]
    later = torch.ones(length, length, dtype=torch.bool, device=scores.device).triu(1)
    # Hidden before the exponential: a later score may lie so far above that it would overflow.
    exponents = (scores[..., None, :] - largest[..., :, None]).masked_fill_(later, -torch.inf)
    return exponents.exp_() @ x
