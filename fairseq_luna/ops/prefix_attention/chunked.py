"""Training form: matrix products inside blocks of time, a running D x E state between them."""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

from ..dtypes import accumulation_dtype, full_precision
from ..once_per_batch import once_per_batch

# With one product by a triangular matrix: faster than a cumulative sum, but quadratic in the number of blocks.
MOST_BLOCKS_SUMMED_AT_ONCE = 128


def prefix_attention(
    q: Tensor, k: Tensor, v: Tensor, *, padding_mask: Tensor | None = None, block_length: int | None = None
) -> Tensor:
    """Causal linear attention as a running mean; specified by :func:`.naive.prefix_attention`.

    With blocks of C steps it takes O(T C + T D E / C) memory; one state per step would take O(T D E).

    Args:
        q, k: ``(B, H, T, D)``.
        v: ``(B, H, T, E)``.
        padding_mask: ``(B, T)`` bool, True = padding; None = no padding.
        block_length: C, the most steps in a block; None chooses it by shape. It affects cost, not the result.

    Returns:
        ``(B, H, T, E)`` in the dtype of ``q``; summed in fp32 if ``q`` is half precision, also under autocast.
    """
    dtype = accumulation_dtype(q)
    weight = step_weights(padding_mask, q.shape[2], dtype, q.device)
    if padding_mask is not None:
        k = k.masked_fill(padding_mask[:, None, :, None], 0)
    return prefix_sums(q * weight, k.to(dtype), v.to(dtype), block_length=block_length).to(q.dtype)


def prefix_sums(q: Tensor, k: Tensor, v: Tensor, *, block_length: int | None = None) -> Tensor:
    """``q_t`` times the sum over ``j <= t`` of ``k_j v_j^T``; :func:`prefix_attention` if ``q`` is weighted.

    Args:
        q: ``(B, H, T, D)``, fp32 or fp64, times :func:`step_weights`.
        k: ``(B, H, T, D)`` of the same dtype, 0 at padding; ``v`` may be 0 there instead.
        v: ``(B, H, T, E)`` of the same dtype.
        block_length: as for :func:`prefix_attention`.
    """
    length = block_length or default_block_length(k.shape[-1], v.shape[-1])
    with full_precision(q):
        return _PrefixSums.apply(q, k, v, length)


def default_block_length(key_size: int, value_size: int) -> int:
    """The power of two, from 32 to 256, at which a block's C x C products cost about as much as its D x E state."""
    balance = (key_size * value_size) ** 0.5
    return max(32, min(256, 1 << (round(balance) - 1).bit_length()))


def step_counts(steps: int, padding_mask: Tensor | None, *, like: Tensor) -> Tensor:
    """The number of real steps up to each step, at least 1: ``(1 or B, 1, T, 1)`` in the dtype of ``like``."""
    if padding_mask is None:
        return torch.arange(1, steps + 1, device=like.device, dtype=like.dtype).view(1, 1, steps, 1)
    return (~padding_mask).cumsum(1).clamp(min=1).to(like.dtype)[:, None, :, None]


@once_per_batch
def step_weights(padding_mask: Tensor | None, steps: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    """1 / :func:`step_counts`."""
    return step_counts(steps, padding_mask, like=torch.empty(0, dtype=dtype, device=device)).reciprocal()


class _PrefixSums(torch.autograd.Function):
    """:func:`prefix_sums`.

    The gradient is written by hand because autograd would keep the C x C products and copy every gradient once more.
    With G = dF v^T masked above the diagonal, each gradient is a sum inside a block plus a product with a state: that
    of the earlier blocks for q, that of the later blocks for k and v.
    """

    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, block_length: int) -> Tensor:
        batch, heads, steps, _ = q.shape
        blocks = max(1, -(-steps // block_length))
        # Blocks of about equal length, so that the last one has little padding.
        ctx.shape = (batch, heads, blocks, -(-steps // blocks))
        q, k, v = (_cut(x, ctx.shape) for x in (q, k, v))
        inside = _products(q, k)
        total = torch.bmm(inside, v)
        earlier = None
        if blocks > 1:
            earlier = _earlier(torch.bmm(k.mT, v), ctx.shape, steps)
            total.baddbmm_(q, earlier, alpha=steps)
        # With several blocks it would take as much memory as q, and is computed again.
        ctx.save_for_backward(q, k, v, inside if blocks == 1 else None, earlier)
        return _joined(total, ctx.shape, steps)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        with full_precision(gradient):
            q, k, v, inside, earlier = ctx.saved_tensors
            steps = gradient.shape[2]
            g = _cut(gradient, ctx.shape)
            of_inside = _products(g, v)
            if inside is None:
                inside = _products(q, k)
            gradients = [torch.bmm(of_inside, k), torch.bmm(of_inside.mT, q), torch.bmm(inside.mT, g)]
            if earlier is not None:
                later = _later(torch.bmm(q.mT, g), ctx.shape, steps)
                gradients[0].baddbmm_(g, earlier.mT, alpha=steps)
                gradients[1].baddbmm_(v, later.mT, alpha=steps)
                gradients[2].baddbmm_(k, later, alpha=steps)
            return *(_joined(x, ctx.shape, steps) for x in gradients), None


def _products(x: Tensor, y: Tensor) -> Tensor:
    """``x_t . y_j`` within each block, 0 for j > t: ``(B H blocks, C, C)``."""
    return torch.bmm(x, y.mT).tril_()


def _earlier(states: Tensor, shape: tuple[int, ...], steps: int) -> Tensor:
    """For each block, the sum of the ``states (B H blocks, D, E)`` before it, divided by ``steps``.

    After this division a sum is at most a mean of k v^T, so that long sequences cannot overflow it.
    """
    batch, heads, blocks, _ = shape
    by_block = states.div_(steps).view(batch * heads, blocks, -1)
    if blocks <= MOST_BLOCKS_SUMMED_AT_ONCE:
        sums = by_block.new_ones(blocks, blocks).tril_(-1) @ by_block
    else:
        sums = F.pad(by_block[:, :-1].cumsum(1), (0, 0, 1, 0))
    return sums.view_as(states)


def _later(states: Tensor, shape: tuple[int, ...], steps: int) -> Tensor:
    """For each block, the sum of the states after it, divided by ``steps``."""
    batch, heads, blocks, _ = shape
    by_block = states.div_(steps).view(batch * heads, blocks, -1)
    if blocks <= MOST_BLOCKS_SUMMED_AT_ONCE:
        sums = by_block.new_ones(blocks, blocks).triu_(1) @ by_block
    else:
        sums = F.pad(by_block[:, 1:].flip(1).cumsum(1).flip(1), (0, 0, 0, 1))
    return sums.view_as(states)


def _cut(x: Tensor, shape: tuple[int, ...]) -> Tensor:
    """``(B, H, T, D)`` to ``(B H blocks, C, D)``; the last block is padded with zeros."""
    batch, heads, blocks, length = shape
    missing = blocks * length - x.shape[2]
    if missing:
        x = F.pad(x, (0, 0, 0, missing))
    return x.reshape(batch * heads * blocks, length, x.shape[-1])


def _joined(x: Tensor, shape: tuple[int, ...], steps: int) -> Tensor:
    """``(B H blocks, C, D)`` to ``(B, H, T, D)``."""
    batch, heads, blocks, length = shape
    return x.view(batch, heads, blocks * length, x.shape[-1])[:, :, :steps]
