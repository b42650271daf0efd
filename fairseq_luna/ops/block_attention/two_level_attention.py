"""Two-level self-attention: reference, and the training forms by gathering blocks and by masking pairs of steps."""

import math
from collections.abc import Callable
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from .. import block_partition
from ..block_partition import Blocks, from_blocks, reduce_blocks, to_blocks
from ..dtypes import accumulation_dtype, full_precision, running_sum
from ..padding import additive_mask, computed_once
from ..softmax_attention import scaled_dot_product_attention, softmax_attention

# Maps summaries (B, H, any number, D) to their queries, keys and values, each summary separately.
Projection = Callable[[Tensor], tuple[Tensor, Tensor, Tensor]]


# Maps the second level's result (B, H, any number, D) to the tensor of the same shape that its readers need.
Finish = Callable[[Tensor], Tensor]


def block_attention_reference(
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
    pairs = pairs_within_reference(blocks)
    y = block_attention_by_mask_reference(q, k, v, pairs.tril() if causal else pairs, dropout_p)
    summaries = weighted_sum_reference(pairs, y, mean=True)
    return y, attention_among_reference(summaries, project, blocks, causal, dropout_p)


def unordered_block_attention_reference(
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

    and Z as in :func:`block_attention_reference`. Causal: Y_ij is over l <= j, and s_i is Y at the last step of block
    i.

    Args:
        v: ``(B, H, T, D)``.
        reduce: "mean" or "sum".
        project, blocks, causal, dropout_p: as in :func:`block_attention_reference`.

    Returns:
        Y and Z as :func:`block_attention_reference`, in the dtype of ``v``.
    """
    pairs = pairs_within_reference(blocks)
    mean = reduce == "mean"
    y = weighted_sum_reference(pairs.tril() if causal else pairs, v, mean=mean)
    return y, attention_among_reference(weighted_sum_reference(pairs, v, mean=mean), project, blocks, causal, dropout_p)


def attention_among_reference(
    summaries: Tensor, project: Projection, blocks: Blocks, causal: bool, dropout_p: float
) -> Tensor:
    """Z ``(B, H, T, D)`` from ``summaries (B, H, T, D)``, one for the block of each step."""
    q, k, v = project(summaries)
    own, other = blocks.block[:, :, None], blocks.block[:, None, :]
    real = ~(blocks.padding_mask[:, :, None] | blocks.padding_mask[:, None, :])
    # A block is read once, at its first step: the step without an earlier one in the same block.
    first = ~pairs_within_reference(blocks).tril(-1).any(2)
    readable = real & first[:, None, :]
    if not causal:
        return block_attention_by_mask_reference(q, k, v, readable, dropout_p)
    previous = weighted_sum_reference(real & (other == own - 1) & first[:, None, :], q, mean=False)
    return block_attention_by_mask_reference(previous, k, v, readable & (other < own), dropout_p)


def pairs_within_reference(blocks: Blocks) -> Tensor:
    """``(B, T, T)`` bool, True = both steps are real and in the same block."""
    same = blocks.block[:, :, None] == blocks.block[:, None, :]
    return same & ~(blocks.padding_mask[:, :, None] | blocks.padding_mask[:, None, :])


def block_attention_by_mask_reference(q: Tensor, k: Tensor, v: Tensor, pairs: Tensor, dropout_p: float) -> Tensor:
    """Softmax attention over the ``pairs (B, T, T)``; zero for a query without any."""
    dtype = accumulation_dtype(q)
    scores = q.to(dtype) @ k.to(dtype).transpose(-1, -2) / math.sqrt(q.shape[-1])
    alone = ~pairs.any(2, keepdim=True)[:, None]
    weights = scores.masked_fill(~pairs[:, None] & ~alone, -torch.inf).softmax(-1).masked_fill(alone, 0)
    return (F.dropout(weights, dropout_p) @ v.to(dtype)).to(q.dtype)


def weighted_sum_reference(pairs: Tensor, x: Tensor, *, mean: bool) -> Tensor:
    """For each step the sum or mean of ``x (B, H, T, D)`` over its ``pairs (B, T, T)``."""
    weights = pairs[:, None].to(accumulation_dtype(x))
    if mean:
        weights = weights / weights.sum(-1, keepdim=True).clamp(min=1)
    return (weights @ x.to(weights.dtype)).to(x.dtype)


# Steps up to which masks are used: a whole training step, 4 layers of 128 channels on a CPU, is 9 to 14 % faster with
# them (2026-11-26).
LONGEST_MASKED = 64


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
    """Two-level attention: the same function as :func:`block_attention_reference`, by the faster form for the length.

    Args:
        q, k, v: ``(B, H, T, D)``.
        project, blocks, causal, dropout_p: as in :func:`block_attention_reference`.

    Returns:
        Y ``(B, H, T, D)``, undefined at padding, and one result of level two for each block, ``(B, H, M, D)``, both in
        the dtype of ``q``. :func:`read_blocks` gives Z of each step from the second.
    """
    form = masked_block_attention if _is_short(blocks) else gathered_block_attention
    return form(q, k, v, project, blocks, causal=causal, dropout_p=dropout_p)


def read_blocks(x: Tensor, blocks: Blocks, *, causal: bool = False) -> Tensor:
    """The entry of each step's block in ``x (B, M, C)``, such as Z: ``(T, B, C)``.

    Arguments and result are specified by :func:`..block_partition.read_blocks`.
    """
    form = multiply_block_of_each_step if _is_short(blocks) else block_partition.gather_block_of_each_step
    return form(x, blocks, causal=causal)


def _is_short(blocks: Blocks) -> bool:
    return blocks.padding_mask.shape[1] <= LONGEST_MASKED


def gathered_block_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    project: Projection,
    blocks: Blocks,
    *,
    causal: bool = False,
    dropout_p: float = 0.0,
) -> tuple[Tensor, Tensor]:
    """:func:`block_attention` for long sequences, in O(T S + M^2) time and memory: M blocks of at most S steps."""
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

    Arguments are specified by :func:`unordered_block_attention_reference`, results by :func:`block_attention`.
    """
    (values,) = to_blocks(v, blocks=blocks)
    summaries = reduce_blocks(values, blocks, reduce)
    if causal:
        y = running_sum(values.to(accumulation_dtype(v)), 2)
        if reduce == "mean":
            y = y / torch.arange(1, blocks.capacity + 1, device=v.device, dtype=y.dtype)[:, None]
        y = from_blocks(y.to(v.dtype), blocks)
    else:
        y = (
            block_partition.gather_block_of_each_step(summaries.transpose(1, 2).flatten(2), blocks)
            .unflatten(2, v.shape[1::2])
            .permute(1, 2, 0, 3)
        )
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


class Pairs(NamedTuple):
    """The blocks as matrices."""

    within: Tensor  # (B, 1, T, T), added to scores: -inf unless the step reads the other one in level one
    means: Tensor  # (B, M, T), 1/n for the n steps of a block, otherwise 0
    reading: Tensor  # (B, T, M), 1 if the step reads the block in level two, otherwise 0


def masked_block_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    project: Projection,
    blocks: Blocks,
    *,
    causal: bool = False,
    dropout_p: float = 0.0,
) -> tuple[Tensor, Tensor]:
    """:func:`block_attention` for short sequences, in O(T^2) time and memory, by one call of torch's attention.

    At these lengths the pairs of steps in different blocks cost less than gathering the steps of each block.
    """
    pairs = _matrices_of_short_texts(blocks, causal)
    y = scaled_dot_product_attention(q, k, v, attn_mask=pairs.within.to(q.dtype), dropout_p=dropout_p)
    with full_precision(y):
        summaries = pairs.means.to(y.dtype) @ y.transpose(1, 2).flatten(2)
    summaries = summaries.unflatten(2, y.shape[1::2]).transpose(1, 2)
    return y, attention_among(summaries, project, blocks, causal, dropout_p)


def multiply_block_of_each_step(x: Tensor, blocks: Blocks, *, causal: bool = False) -> Tensor:
    """:func:`read_blocks` for short sequences."""
    with full_precision(x):
        return (_matrices_of_short_texts(blocks, causal).reading.to(x.dtype) @ x).transpose(0, 1)


@computed_once
def _matrices_of_short_texts(blocks: Blocks, causal: bool) -> Pairs:
    """The matrices that all layers with the same ``blocks`` use."""
    block, padded, dtype = blocks.block, blocks.padding_mask, blocks.summing.dtype
    apart = (block[:, :, None] != block[:, None]) | padded[:, None]
    if causal:
        apart |= apart.new_ones(apart.shape[1:]).triu_(1)
    # A padded step reads itself: a softmax over nothing is NaN.
    apart &= ~torch.eye(apart.shape[1], dtype=torch.bool, device=apart.device)
    number = torch.arange(blocks.sizes.shape[1], device=block.device)
    members = (block[:, None] == number[:, None]) & ~padded[:, None]
    return Pairs(
        within=additive_mask(apart[:, None], dtype),
        means=members.to(dtype) / blocks.sizes.clamp(min=1).to(dtype)[:, :, None],
        reading=(block[:, :, None] - int(causal) == number).to(dtype),
    )


def attention_among(summaries: Tensor, project: Projection, blocks: Blocks, causal: bool, dropout_p: float) -> Tensor:
    """Attention ``(B, H, M, D)`` of the ``summaries (B, H, M, D)`` to all blocks, or to themselves and earlier ones."""
    q, k, v = project(summaries)
    if causal:
        return scaled_dot_product_attention(q, k, v, is_causal=True, dropout_p=dropout_p)
    return softmax_attention(q, k, v, padding=blocks.empty_blocks, dropout_p=dropout_p)[0]
