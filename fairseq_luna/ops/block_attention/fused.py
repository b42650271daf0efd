"""Training form of short sequences: all pairs of steps in one call of torch's attention, with a mask.

At these lengths the pairs of steps in different blocks cost less than gathering the steps of each block.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from ..block_partition import Blocks
from ..dtypes import full_precision
from ..padding import additive_mask, computed_once
from ..softmax_attention import scaled_dot_product_attention
from .shared import Projection, attention_among


class Pairs(NamedTuple):
    """Blocks as matrices."""

    within: Tensor  # (B, 1, T, T), added to scores: -inf unless the step reads the other one in level one
    means: Tensor  # (B, M, T), 1/n for the n steps of a block, otherwise 0
    reading: Tensor  # (B, T, M), 1 if the step reads the block in level two, otherwise 0


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
    """Two-level attention in O(T^2) time and memory; arguments and results are those of :mod:`.chunked`."""
    pairs = _pairs(blocks, causal)
    y = scaled_dot_product_attention(q, k, v, attn_mask=pairs.within.to(q.dtype), dropout_p=dropout_p)
    with full_precision(y):
        summaries = pairs.means.to(y.dtype) @ y.transpose(1, 2).flatten(2)
    summaries = summaries.unflatten(2, y.shape[1::2]).transpose(1, 2)
    return y, attention_among(summaries, project, blocks, causal, dropout_p)


def read_blocks(x: Tensor, blocks: Blocks, *, causal: bool = False) -> Tensor:
    """As :func:`..block_partition.read_blocks`: ``(B, M, C)`` to ``(T, B, C)``."""
    with full_precision(x):
        return (_pairs(blocks, causal).reading.to(x.dtype) @ x).transpose(0, 1)


@computed_once
def _pairs(blocks: Blocks, causal: bool) -> Pairs:
    """The matrices that all layers with the same ``blocks`` read."""
    block, padded, dtype = blocks.block, blocks.padding_mask, blocks.summing.dtype
    apart = (block[:, :, None] != block[:, None]) | padded[:, None]
    if causal:
        apart |= apart.new_ones(apart.shape[1:]).triu_(1)
    # A padded step reads itself: a softmax over nothing is NaN.
    apart &= ~torch.eye(apart.shape[1], dtype=torch.bool, device=apart.device)
    number = torch.arange(blocks.sizes.shape[1], device=block.device)
    members = (block[:, None] == number[:, None]) & ~padded[:, None]
    return Pairs(
        within=additive_mask(apart, dtype)[:, None],
        means=members.to(dtype) / blocks.sizes.clamp(min=1).to(dtype)[:, :, None],
        reading=(block[:, :, None] - int(causal) == number).to(dtype),
    )
