"""The form that trains: all blocks side by side, so that T x T pairs are never made."""

import torch
import torch.nn.functional as F
from torch import Tensor

from ..block_partition import Blocks, from_blocks, to_blocks
from ..dtypes import accumulation_dtype
from ..softmax_attention import softmax_attention
from .naive import Projection


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
    """Block attention; :func:`.naive.block_attention` states it, arguments and all.

    With M blocks of at most S steps it takes O(T S + M^2) time and memory.

    Args:
        q: ``(B, H, T, D)``.
        k: ``(B, H, T, D)``.
        v: ``(B, H, T, D)``.
        project: queries, keys and values of summaries ``(B, H, M, D)``.
        blocks: which step is in which block; padding is in none.
        causal: no step sees a later one.
        dropout_p: probability with which a weight of either level is dropped.

    Returns:
        Y and Z, each ``(B, H, T, D)`` in the dtype of ``q``; zero at padding.
    """
    q, k, v = (to_blocks(x, blocks) for x in (q, k, v))
    if causal:
        # A block is filled from its first place on: what a real step may see is never an empty place.
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True, dropout_p=dropout_p)
    else:
        y = softmax_attention(q, k, v, padding_mask=empty_places(blocks).flatten(0, 1), dropout_p=dropout_p)
    y = y.masked_fill(empty_places(blocks).flatten(0, 1)[:, None, :, None], 0)
    summaries = (summed(y) / sizes_of(blocks)).to(y.dtype)
    return from_blocks(y, blocks), attention_among(summaries, project, blocks, causal, dropout_p)


def unordered_block_attention(
    v: Tensor,
    project: Projection,
    blocks: Blocks,
    *,
    reduce: str,
    causal: bool = False,
    dropout_p: float = 0.0,
) -> tuple[Tensor, Tensor]:
    """Block attention over unordered blocks; :func:`.naive.unordered_block_attention` states it.

    Args:
        v: ``(B, H, T, D)``.
        project: queries, keys and values of summaries ``(B, H, M, D)``.
        blocks: which step is in which block; padding is in none.
        reduce: "mean" or "sum".
        causal: no step sees a later one.
        dropout_p: probability with which a weight of the second level is dropped.

    Returns:
        Y and Z, each ``(B, H, T, D)`` in the dtype of ``v``; zero at padding.
    """
    values = to_blocks(v, blocks)
    mean = reduce == "mean"
    summaries = summed(values)
    if mean:
        summaries = summaries / sizes_of(blocks)
    summaries = summaries.to(v.dtype)
    if causal:
        y = values.cumsum(2, dtype=accumulation_dtype(v))
        if mean:
            y = y / torch.arange(1, blocks.capacity + 1, device=v.device, dtype=y.dtype)[:, None]
        y = y.to(v.dtype)
    else:
        y = summaries[:, :, None].expand_as(values)
    return from_blocks(y, blocks), attention_among(summaries, project, blocks, causal, dropout_p)


def attention_among(summaries: Tensor, project: Projection, blocks: Blocks, causal: bool, dropout_p: float) -> Tensor:
    """Z ``(B, H, T, D)`` from one summary for each block, ``(B M, H, D)``."""
    q, k, v = project(summaries.unflatten(0, blocks.sizes.shape).transpose(1, 2))
    if causal:
        z = F.scaled_dot_product_attention(q, k, v, is_causal=True, dropout_p=dropout_p)
        z = F.pad(z[:, :, :-1], (0, 0, 1, 0))  # a block reads what the one before it may see
    else:
        z = softmax_attention(q, k, v, padding_mask=empty_blocks(blocks), dropout_p=dropout_p)
    z = z.transpose(1, 2).flatten(0, 1)[:, :, None].expand(-1, -1, blocks.capacity, -1)
    return from_blocks(z, blocks)


def summed(x: Tensor) -> Tensor:
    """Each block's sum over its places: ``(B M, H, S, D)`` to ``(B M, H, D)``, in fp32 for half precision."""
    return x.sum(2, dtype=accumulation_dtype(x))


def sizes_of(blocks: Blocks) -> Tensor:
    """How many steps each block holds, at least 1: ``(B M, 1, 1)``."""
    return blocks.sizes.clamp(min=1).view(-1, 1, 1)


def empty_places(blocks: Blocks) -> Tensor:
    """``(B, M, S)`` bool: no step fills this place. The first always counts as filled, so that no softmax is empty."""
    place = torch.arange(blocks.capacity, device=blocks.sizes.device)
    return place >= blocks.sizes.clamp(min=1)[:, :, None]


def empty_blocks(blocks: Blocks) -> Tensor:
    """``(B, M)`` bool: no step is in this block. The first always counts as filled, so that no softmax is empty."""
    number = torch.arange(blocks.sizes.shape[1], device=blocks.sizes.device)
    return (blocks.sizes == 0) & (number > 0)
