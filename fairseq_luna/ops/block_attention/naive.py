"""Specification: softmax over all T x T pairs of steps, with masks for the blocks."""

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from ..block_partition import Blocks
from ..dtypes import accumulation_dtype
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
    """Attention among the steps of each block, then among the blocks (``docs/mathematics.md``).

        Y_ij = sum over steps l of block i of softmax_l(q_ij k_il^T / sqrt(D)) v_il              level one
        s_i  = mean over j of Y_ij;    q'_i, k'_i, v'_i = project(s_i)                           summary
        Z_i  = sum over blocks l of softmax_l(q'_i k'_l^T / sqrt(D)) v'_l                        level two

    Causal: l <= j in level one; in level two Z_i has the query q'_{i-1} and the blocks l < i, and Z_0 = 0.

    Args:
        q, k, v: ``(B, H, T, D)``.
        project: from summaries to their queries, keys and values.
        blocks: the block of each step; padding is in none.
        causal: steps do not see later ones.
        dropout_p: dropout probability of the weights of both levels.

    Returns:
        Y and Z, each ``(B, H, T, D)`` in the dtype of ``q``; zero at padding. Z is the same for all steps of a block.
        Softmax and sums are in fp32 if ``q`` is half precision.
    """
    pairs = pairs_within(blocks)
    y = masked_attention(q, k, v, pairs.tril() if causal else pairs, dropout_p)
    summaries = weighted_sum(pairs, y, mean=True)
    return y, attention_among(summaries, project, blocks, causal, dropout_p)


def unordered_block_attention(
    v: Tensor,
    project: Projection,
    blocks: Blocks,
    *,
    reduce: str,
    causal: bool = False,
    dropout_p: float = 0.0,
) -> tuple[Tensor, Tensor]:
    """Two-level attention whose first level is a mean or sum, which ignores the order of the steps in a block.

        Y_ij = mean, or sum, over steps l of block i of v_il;    s_i = Y_ij

    and Z as in :func:`block_attention`. Causal: Y_ij is over l <= j, and s_i is Y at the last step of block i.

    Args:
        v: ``(B, H, T, D)``.
        reduce: "mean" or "sum".
        project, blocks, causal, dropout_p: as in :func:`block_attention`.

    Returns:
        Y and Z as :func:`block_attention`, in the dtype of ``v``.
    """
    pairs = pairs_within(blocks)
    mean = reduce == "mean"
    y = weighted_sum(pairs.tril() if causal else pairs, v, mean=mean)
    return y, attention_among(weighted_sum(pairs, v, mean=mean), project, blocks, causal, dropout_p)


def attention_among(summaries: Tensor, project: Projection, blocks: Blocks, causal: bool, dropout_p: float) -> Tensor:
    """Z ``(B, H, T, D)`` from ``summaries (B, H, T, D)``, one for the block of each step."""
    q, k, v = project(summaries)
    own, other = blocks.block[:, :, None], blocks.block[:, None, :]
    real = ~(blocks.padding_mask[:, :, None] | blocks.padding_mask[:, None, :])
    # A block is read once, at its first step: the step without an earlier one in the same block.
    first = ~pairs_within(blocks).tril(-1).any(2)
    readable = real & first[:, None, :]
    if not causal:
        return masked_attention(q, k, v, readable, dropout_p)
    previous = weighted_sum(real & (other == own - 1) & first[:, None, :], q, mean=False)
    return masked_attention(previous, k, v, readable & (other < own), dropout_p)


def pairs_within(blocks: Blocks) -> Tensor:
    """``(B, T, T)`` bool, True = both steps are real and in the same block."""
    same = blocks.block[:, :, None] == blocks.block[:, None, :]
    return same & ~(blocks.padding_mask[:, :, None] | blocks.padding_mask[:, None, :])


def masked_attention(q: Tensor, k: Tensor, v: Tensor, pairs: Tensor, dropout_p: float) -> Tensor:
    """Softmax attention over the ``pairs (B, T, T)``; zero for a query without any."""
    dtype = accumulation_dtype(q)
    scores = q.to(dtype) @ k.to(dtype).transpose(-1, -2) / math.sqrt(q.shape[-1])
    alone = ~pairs.any(2, keepdim=True)[:, None]
    weights = scores.masked_fill(~pairs[:, None] & ~alone, -torch.inf).softmax(-1).masked_fill(alone, 0)
    return (F.dropout(weights, dropout_p) @ v.to(dtype)).to(q.dtype)


def weighted_sum(pairs: Tensor, x: Tensor, *, mean: bool) -> Tensor:
    """For each step the sum or mean of ``x (B, H, T, D)`` over its ``pairs (B, T, T)``."""
    weights = pairs[:, None].to(accumulation_dtype(x))
    if mean:
        weights = weights / weights.sum(-1, keepdim=True).clamp(min=1)
    return (weights @ x.to(weights.dtype)).to(x.dtype)
