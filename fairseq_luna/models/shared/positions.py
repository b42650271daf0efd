"""Embeddings of positions: fairseq's modules, read at positions that are known.

fairseq's own forward pass computes the positions from the tokens at each call, and has branches on numbers that a
graph would make constants of.
"""

from typing import Any

import torch.nn.functional as F
from fairseq.modules import SinusoidalPositionalEmbedding
from torch import Tensor

from ...ops.padding import Padding


def positions_of_sequence(embedding: Any, steps: int, padding: Padding) -> Tensor | None:
    """The embeddings to add to the tokens of whole sequences, ``(B or 1, T, C)``; None without ``embedding``.

    As in fairseq, only real tokens are counted.
    """
    if embedding is None:
        return None
    table, first = position_table(embedding, steps), embedding.padding_idx + 1
    if padding.mask is None:
        return table[first : first + steps][None]
    rows = padding.counts.masked_fill(padding.mask, 0) + embedding.padding_idx
    return F.embedding(rows, table, embedding.padding_idx)


def position_of_step(embedding: Any, position: Tensor | int) -> Tensor | None:
    """The embedding to add to the token of one step, ``(1, 1, C)``; None without ``embedding``.

    Args:
        embedding: fairseq's.
        position: from 0: a tensor ``(1,)`` int64, for graphs that serve any position, or a number, with which the row
            is read without a copy.
    """
    if embedding is None:
        return None
    first = embedding.padding_idx + 1
    if isinstance(position, Tensor):
        return position_table(embedding, 0).index_select(0, position + first)[None]
    return position_table(embedding, position + 1)[first + position][None, None]


def position_table(embedding: Any, steps: int) -> Tensor:
    """All rows ``(N, C)`` of an ``embedding``; sinusoidal ones are extended to at least ``steps`` rows."""
    if not isinstance(embedding, SinusoidalPositionalEmbedding):
        return embedding.weight
    rows = embedding.padding_idx + 1 + steps
    # In fairseq 0.12.2 the table is not a buffer, and follow this one to another device or dtype.
    like = getattr(embedding, "_float_tensor", embedding.weights)
    table = embedding.weights
    if rows > table.shape[0]:
        table = embedding.get_embedding(rows, embedding.embedding_dim, embedding.padding_idx)
    table = table.to(like)
    if table is not embedding.weights:
        embedding.weights = table
    return table
