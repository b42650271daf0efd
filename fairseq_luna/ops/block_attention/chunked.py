"""Training form: all blocks in parallel, without the T x T pairs of steps."""

import torch
from torch import Tensor

from ..block_partition import Blocks, from_blocks, read_blocks, reduce_blocks, to_blocks
from ..dtypes import accumulation_dtype, running_sum
from ..softmax_attention import scaled_dot_product_attention, softmax_attention
from .shared import Projection, attention_among


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
        Y ``(B, H, T, D)``, undefined at padding, and one result of level two for each block, ``(B, H, M, D)``, both in
        the dtype of ``q``. :func:`..block_partition.read_blocks` gives Z of each step from the second.
    """
    y = attention_within(q, k, v, blocks, causal=causal, dropout_p=dropout_p)
    z = attention_among(reduce_blocks(y, blocks), project, blocks, causal, dropout_p)
    return from_blocks(y, blocks), z


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

    Arguments are those of :func:`.naive.unordered_block_attention`, results those of :func:`block_attention`.
    """
    (values,) = to_blocks(v, blocks=blocks)
    summaries = reduce_blocks(values, blocks, reduce)
    if causal:
        y = running_sum(values.to(accumulation_dtype(v)), 2)
        if reduce == "mean":
            y = y / torch.arange(1, blocks.capacity + 1, device=v.device, dtype=y.dtype)[:, None]
        y = from_blocks(y.to(v.dtype), blocks)
    else:
        y = read_blocks(summaries.transpose(1, 2).flatten(2), blocks).unflatten(2, v.shape[1::2]).permute(1, 2, 0, 3)
    return y, attention_among(summaries, project, blocks, causal, dropout_p)


def attention_within(
    q: Tensor, k: Tensor, v: Tensor, blocks: Blocks, *, causal: bool = False, dropout_p: float = 0.0
) -> Tensor:
    """Softmax attention ``(B M, H, S, D)`` of every step to the steps of its block; undefined in empty places."""
    q, k, v = to_blocks(q, k, v, blocks=blocks)
    if causal:
        # Blocks are filled from their first place on: no real step has an empty place before it.
        return scaled_dot_product_attention(q, k, v, is_causal=True, dropout_p=dropout_p)
    return softmax_attention(q, k, v, padding=blocks.empty_places, dropout_p=dropout_p)[0]
