"""Training form: all blocks in parallel, without the T x T pairs of steps."""

import torch
import torch.nn.functional as F
from torch import Tensor

from ..block_partition import Blocks, empty_blocks, empty_places, from_blocks, reduce_blocks, to_blocks
from ..dtypes import accumulation_dtype
from ..softmax_attention import scaled_dot_product_attention, softmax_attention
from .shared import Projection


def block_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    project: Projection,
    blocks: Blocks,
    *,
    causal: bool = False,
    dropout_p: float = 0.0,
) -> tuple[Tensor, Tensor]:
    """Two-level attention in O(T S + M^2) time and memory, with M blocks of at most S steps.

    Args:
        q, k, v: ``(B, H, T, D)``.
        project, blocks, causal, dropout_p: as in :func:`.naive.block_attention`.

    Returns:
        Y and Z, each ``(B, H, T, D)`` in the dtype of ``q``; zero at padding.
    """
    y = attention_within(q, k, v, blocks, causal=causal, dropout_p=dropout_p)
    y = y.masked_fill(empty_places(blocks).flatten(0, 1)[:, None, :, None], 0)
    return from_blocks(y, blocks), attention_among(reduce_blocks(y, blocks), project, blocks, causal, dropout_p)


def unordered_block_attention(
    v: Tensor,
    project: Projection,
    blocks: Blocks,
    *,
    reduce: str,
    causal: bool = False,
    dropout_p: float = 0.0,
) -> tuple[Tensor, Tensor]:
    """Two-level attention with unordered blocks, in O(T + M^2) time and memory.

    Args:
        v: ``(B, H, T, D)``.
        project, blocks, reduce, causal, dropout_p: as in :func:`.naive.unordered_block_attention`.

    Returns:
        Y and Z, each ``(B, H, T, D)`` in the dtype of ``v``; zero at padding.
    """
    values = to_blocks(v, blocks)
    summaries = reduce_blocks(values, blocks, reduce)
    if causal:
        y = values.cumsum(2, dtype=accumulation_dtype(v))
        if reduce == "mean":
            y = y / torch.arange(1, blocks.capacity + 1, device=v.device, dtype=y.dtype)[:, None]
        y = y.to(v.dtype)
    else:
        y = summaries[:, :, None].expand_as(values)
    return from_blocks(y, blocks), attention_among(summaries, project, blocks, causal, dropout_p)


def attention_within(
    q: Tensor, k: Tensor, v: Tensor, blocks: Blocks, *, causal: bool = False, dropout_p: float = 0.0
) -> Tensor:
    """Softmax attention ``(B M, H, S, D)`` of every step to the steps of its block; undefined in empty places."""
    q, k, v = (to_blocks(x, blocks) for x in (q, k, v))
    if causal:
        # Blocks are filled from their first place on: no real step has an empty place before it.
        return scaled_dot_product_attention(q, k, v, is_causal=True, dropout_p=dropout_p)
    return softmax_attention(q, k, v, padding_mask=empty_places(blocks).flatten(0, 1), dropout_p=dropout_p)[0]


def attention_among(summaries: Tensor, project: Projection, blocks: Blocks, causal: bool, dropout_p: float) -> Tensor:
    """Z ``(B, H, T, D)`` from the summaries of all blocks, ``(B M, H, D)``."""
    q, k, v = project(summaries.unflatten(0, blocks.sizes.shape).transpose(1, 2))
    if causal:
        z = scaled_dot_product_attention(q, k, v, is_causal=True, dropout_p=dropout_p)
        z = F.pad(z[:, :, :-1], (0, 0, 1, 0))  # a block reads the result of the previous block's query
    else:
        z, _ = softmax_attention(q, k, v, padding_mask=empty_blocks(blocks), dropout_p=dropout_p)
    z = z.transpose(1, 2).flatten(0, 1)[:, :, None].expand(-1, -1, blocks.capacity, -1)
    return from_blocks(z, blocks)
