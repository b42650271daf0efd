"""The form that trains: matrix products inside blocks of time, a running D x E state between them."""

import torch
import torch.nn.functional as F
from torch import Tensor

from ..dtypes import accumulation_dtype


def prefix_attention(
    q: Tensor, k: Tensor, v: Tensor, *, padding_mask: Tensor | None = None, block_length: int | None = None
) -> Tensor:
    """Read the running mean of ``k_j v_j^T`` with ``q_t``, for every step ``t``.

    The same function as :func:`.naive.prefix_attention`, which states it. With blocks of C steps it takes
    O(T C + T D E / C) memory, where one state per step would take O(T D E).

    Args:
        q: ``(B, H, T, D)``.
        k: ``(B, H, T, D)``.
        v: ``(B, H, T, E)``.
        padding_mask: ``(B, T)`` bool, True = padding; None = nothing is padded.
        block_length: steps in a block, C; None chooses it by shape. It changes the cost, not the result.

    Returns:
        ``(B, H, T, E)`` in the dtype of ``q``; summed in fp32 when ``q`` is half precision.
    """
    steps = q.shape[2]
    dtype = accumulation_dtype(q)
    out_dtype = q.dtype
    q, k, v = q.to(dtype), k.to(dtype), v.to(dtype)
    if padding_mask is not None:
        k = k.masked_fill(padding_mask[:, None, :, None], 0)
    block_length = block_length or default_block_length(k.shape[-1], v.shape[-1])
    total = _sum_in_one_block(q, k, v) if steps <= block_length else _sum_by_blocks(q, k, v, block_length)
    return (total / step_counts(steps, padding_mask, like=total)).to(out_dtype)


def default_block_length(key_size: int, value_size: int) -> int:
    """The power of two at which a block's C x C products cost about as much as its D x E state."""
    balance = (key_size * value_size) ** 0.5
    return max(32, min(256, 1 << round(balance).bit_length()))


def step_counts(steps: int, padding_mask: Tensor | None, *, like: Tensor) -> Tensor:
    """How many real steps stand at or before each step, at least 1: ``(1 or B, 1, T, 1)``, as ``like``."""
    if padding_mask is None:
        return torch.arange(1, steps + 1, device=like.device, dtype=like.dtype).view(1, 1, steps, 1)
    return (~padding_mask).cumsum(1).clamp(min=1).to(like.dtype)[:, None, :, None]


def _sum_in_one_block(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return (q @ k.transpose(-1, -2)).tril() @ v


def _sum_by_blocks(q: Tensor, k: Tensor, v: Tensor, block_length: int) -> Tensor:
    batch, heads, steps, _ = q.shape
    blocks = -(-steps // block_length)
    q, k, v = (_cut(x, blocks, block_length) for x in (q, k, v))
    states = (k.transpose(-1, -2) @ v).unflatten(0, (batch * heads, blocks))
    # Scaled by 1/T, the state is never larger than a mean of k v^T: long sequences cannot overflow it.
    earlier = F.pad((states[:, :-1] / steps).cumsum(1), (0, 0, 0, 0, 1, 0)).flatten(0, 1)
    total = torch.baddbmm(_sum_in_one_block(q, k, v), q, earlier, alpha=steps)
    return total.view(batch, heads, blocks * block_length, -1)[:, :, :steps]


def _cut(x: Tensor, blocks: int, block_length: int) -> Tensor:
    """``(B, H, T, D)`` to ``(B H blocks, block_length, D)``; the last block is filled up with zeros."""
    missing = blocks * block_length - x.shape[2]
    if missing:
        x = F.pad(x, (0, 0, 0, missing))
    return x.reshape(-1, block_length, x.shape[-1])
