"""Softmax pooling over a prefix: ``o_t = sum over j <= t of a_tj v_j``, ``a_t = softmax over j <= t of s_j``."""

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from .chunks import split_into_chunks
from .dtypes import accumulation_dtype, full_precision
from .padding import Padding, PaddingLike, computed_once


def prefix_softmax_reference(scores: Tensor, v: Tensor, *, padding: PaddingLike = None) -> Tensor:
    """Mean of the values up to each step ``t``, weighted by the softmax of the scores up to ``t``.

        o_t = sum over real j <= t of a_tj v_j,    a_t = softmax over real j <= t of s_j

    Padded steps have no weight, at any position; before the first real step the output is zero. Source: the additive
    attention of Fastformer (arXiv 2108.09084, equations 3 and 4), restricted to the steps up to t.

    Args:
        scores: ``(B, H, T)``; may have a wider dtype than ``v``.
        v: ``(B, H, T, D)``.
        padding: ``(B, T)`` bool, True = padding; None = no padding.

    Returns:
        ``(B, H, T, D)`` in the dtype of ``v``; softmax and sum are in fp32 if ``v`` is half precision.
    """
    padding_mask = Padding.of(padding).mask
    outputs = []
    for end in range(1, v.shape[2] + 1):
        padded = None if padding_mask is None else padding_mask[:, :end]
        outputs.append(softmax_mean_reference(scores[:, :, :end], v[:, :, :end], padding=padded))
    return torch.cat(outputs, dim=2)


def softmax_mean_reference(scores: Tensor, v: Tensor, *, padding: PaddingLike = None) -> Tensor:
    """``sum over j of softmax(s)_j v_j`` over all real steps: ``(B, H, 1, D)``, zero if there are none."""
    padding_mask = Padding.of(padding).mask
    dtype = accumulation_dtype(v)
    scores = scores.to(dtype)
    if padding_mask is None:
        weights = scores.softmax(-1)
    else:
        nothing = padding_mask.all(dim=1)[:, None, None]
        scores = scores.masked_fill(padding_mask[:, None, :], -torch.inf)
        weights = scores.masked_fill(nothing, 0).softmax(-1).masked_fill(nothing, 0)
    return (weights[..., None] * v.to(dtype)).sum(2, keepdim=True).to(v.dtype)


def prefix_softmax(
    scores: Tensor, v: Tensor, *, padding: PaddingLike = None, block_length: int | None = None
) -> Tensor:
    """The same function as :func:`prefix_softmax_reference`, by a C x C matrix of weights in each block of time.

    The blocks are connected by the same function, recursively. With blocks of C steps it takes O(T (C + D)) memory
    instead of O(T^2). The largest score so far is subtracted before each exponential: none overflows, and one weight is
    always 1.

    Args:
        scores, v, padding: as in :func:`prefix_softmax_reference`.
        block_length: C, at least 2; None chooses it by shape. It affects the cost, not the result.

    Returns:
        ``(B, H, T, D)`` in the dtype of ``v``; sums are in fp32 if ``v`` is half precision, also under autocast.
    """
    padding = Padding.of(padding)
    length = block_length or default_softmax_block_length(v.shape[-1])
    with full_precision(v):
        if v.shape[2] <= length:
            mean = _mean_of_one_block(scores, v, padding)
        else:
            mean = _mean_of_blocks(scores, v, padding, length)
    return mean.to(v.dtype)


def default_softmax_block_length(value_size: int) -> int:
    """The power of two, from 32 to 128, at which a block's weights take about as much memory as its values."""
    return max(32, min(128, 1 << (value_size - 1).bit_length()))


def largest_so_far(scores: Tensor) -> Tensor:
    """Running maximum over the last axis, finite even if every score so far is -inf.

    It scales numerator and denominator by the same factor, so it needs no gradient.
    """
    with torch.no_grad():
        return scores.cummax(-1).values.clamp(min=torch.finfo(scores.dtype).min)


class VisibleSteps(NamedTuple):
    """The masks of the steps that each step of one block sees, the same in all layers."""

    scores: Tensor  # (1 or B, 1, T, T), added to them: -inf at later steps, the lowest number at padding, otherwise 0
    values: Tensor | None  # (B, 1, T, 1), 0 at padding, otherwise 1; None without padding


@computed_once
def _visible_steps(padding: Padding, steps: int, dtype: torch.dtype, device: torch.device) -> VisibleSteps:
    later = torch.full((1, 1, steps, steps), -torch.inf, dtype=dtype, device=device).triu_(1)
    if padding.mask is None:
        return VisibleSteps(later, None)
    # Not -inf at padding: a softmax over nothing is NaN. Before the first real step all values are 0.
    padded = later.new_zeros(padding.mask.shape).masked_fill_(padding.mask, torch.finfo(dtype).min)
    return VisibleSteps(later + padded[:, None, None], padding.real_factor(dtype))


def _mean_of_one_block(scores: Tensor, v: Tensor, padding: Padding) -> Tensor:
    """The sums and their denominator in one softmax: ``(B, H, T, D)``."""
    dtype = accumulation_dtype(v)
    visible = _visible_steps(padding, v.shape[2], dtype, v.device)
    weights = (scores.to(dtype)[:, :, None] + visible.scores).softmax(-1)
    return weights @ (v.to(dtype) if visible.values is None else v * visible.values)


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

    Not ``clamp(min=1)``, which from torch 2.15 on has no gradient at 1 itself.
    """
    return denominator.masked_fill(denominator == 0, 1)


def _running_sums(scores: Tensor, x: Tensor, block_length: int) -> Tensor:
    """``sum over j <= t of exp(s_j - m_t) x_j``, m_t the largest score so far: ``(B, H, T, E)``, as ``x``.

    The sums at the block ends are running sums of T / C items, computed by recursion.
    """
    steps = scores.shape[-1]
    if steps <= block_length:
        return _sums_in_blocks(scores, largest_so_far(scores), x)
    scores = split_into_chunks(scores, block_length, dim=-1, fill=-torch.inf)
    largest = largest_so_far(scores.flatten(-2)).view(scores.shape)
    inside = _sums_in_blocks(scores, largest, split_into_chunks(x, block_length, dim=-2))

    # Block b starts from the sum at the end of block b - 1, the first block from 0.
    ends = largest[..., :-1, -1]
    before = F.pad(_running_sums(ends, inside[..., :-1, -1, :], block_length), (0, 0, 1, 0))
    decay = F.pad((ends[..., None] - largest[..., 1:, :]).exp(), (0, 0, 1, 0))
    total = inside + decay[..., None] * before[..., None, :]
    return total.flatten(2, 3)[:, :, :steps]


def _sums_in_blocks(scores: Tensor, largest: Tensor, x: Tensor) -> Tensor:
    """:func:`_running_sums` within each block: ``scores, largest (..., C)``, ``x (..., C, E)``."""
    length = scores.shape[-1]
    later = torch.ones(length, length, dtype=torch.bool, device=scores.device).triu(1)
    # Masked before the exponential: a later score may be large enough to overflow it.
    exponents = (scores[..., None, :] - largest[..., :, None]).masked_fill_(later, -torch.inf)
    return exponents.exp_() @ x


class RunningSoftmax(NamedTuple):
    """The state of generation: a softmax over the real steps so far and the mean of their values.

    The mean is in fp32 if the values are half precision.
    """

    # (B, H, 1), log of the sum of exp(s_j); the lowest number before the first real step. A logarithm takes one
    # operator where a largest score and a sum take six, but fp32 would lose the 100,000th step: it is fp64.
    log_denominator: Tensor
    mean: Tensor  # (B, H, 1, D)


def prefix_softmax_step(
    scores: Tensor, v: Tensor, state: RunningSoftmax | None, *, padding: PaddingLike = None
) -> tuple[Tensor, RunningSoftmax]:
    """One step of :func:`prefix_softmax_reference`: its arguments with T = 1; the state is None before the first.

    Returns:
        ``(B, H, 1, D)`` in the dtype of ``v``, and the state after this step.
    """
    padding = Padding.of(padding)
    values = v.to(accumulation_dtype(v))
    if padding.mask is not None:
        scores = scores.masked_fill(padding.mask[:, None], -torch.inf)  # leaves the state unchanged
    if state is None:
        lowest = torch.finfo(torch.float64).min
        nothing = v.new_full(v.shape[:3], lowest, dtype=torch.float64)
        state = RunningSoftmax(nothing, torch.zeros_like(values))
    # exp(s) / (exp(s) + the sum so far). No score overflows it.
    share = (scores - state.log_denominator).sigmoid().to(values.dtype)
    # A running mean instead of a numerator: the mean of equal values is exact after any number of steps.
    mean = torch.lerp(state.mean, values, share[..., None])
    return mean.to(v.dtype), RunningSoftmax(torch.logaddexp(state.log_denominator, scores), mean)
