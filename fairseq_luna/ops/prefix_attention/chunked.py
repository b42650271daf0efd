"""Training form: matrix products inside blocks of time, a running D x E state between them."""

import torch
import torch.nn.functional as F
from torch import Tensor

from ..dtypes import accumulation_dtype
from ..once_per_batch import once_per_batch
from .sums import PrefixSums


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
    return sums_and_states(q, k, v, block_length=block_length)[0]


def sums_and_states(
    q: Tensor, k: Tensor, v: Tensor, *, states: Tensor | None = None, block_length: int | None = None
) -> tuple[Tensor, Tensor | None]:
    """:func:`prefix_sums`, and its states before each block, or None if there is one block.

    Args:
        states: the transposed states of :func:`prefix_sums` with ``v`` in place of ``k`` and ``k`` of ``v``, which are
            those of ``k`` and ``v``; None computes them.
    """
    batch, heads, steps, _ = q.shape
    blocks = max(1, -(-steps // (block_length or default_block_length(k.shape[-1], v.shape[-1]))))
    # Blocks of about equal length, so that the last one has little padding.
    length = -(-steps // blocks)
    total, _, earlier = PrefixSums.apply(*(cut(x, blocks, length) for x in (q, k, v)), states, blocks)
    joined = total.view(batch, heads, blocks * length, v.shape[-1])
    return joined if blocks * length == steps else joined[:, :, :steps], earlier


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


def cut(x: Tensor, blocks: int, length: int) -> Tensor:
    """``(B, H, T, D)`` to ``(B H blocks, C, D)``; the last block is padded with zeros."""
    missing = blocks * length - x.shape[2]
    if missing:
        x = F.pad(x, (0, 0, 0, missing))
    return x.reshape(x.shape[0] * x.shape[1] * blocks, length, x.shape[-1])
