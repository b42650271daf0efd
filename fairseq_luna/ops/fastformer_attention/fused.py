"""Bidirectional training form: matrix products for the sums over time."""

import torch
from torch import Tensor

from ..chunks import in_chunks
from ..dropout import drop
from ..dtypes import full_precision
from ..masked_softmax import masked_softmax
from ..padding import Padding, PaddingLike
from .shared import FastformerMaps, scaled_score

LONGEST_SUM = 512  # steps in one matrix product


def fastformer_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    maps: FastformerMaps,
    *,
    padding: PaddingLike = None,
    dropout_p: float = 0.0,
) -> tuple[Tensor, Tensor]:
    """Fastformer's bidirectional attention.

    Args:
        q, k, v: ``(B, H, T, D)``.
        maps, padding, dropout_p: as in :func:`.naive.fastformer_attention`.

    Returns:
        ``u (B, H, T, D)`` and the global query ``(B, H, 1, D)``, in the dtype of ``q``.
    """
    padding = Padding.of(padding)
    global_query = _pooled(maps.query_score(q), q, padding, dropout_p)
    p = maps.combine_key(global_query, k)
    global_key = _pooled(maps.key_score(p), p, padding, dropout_p)
    return maps.combine_value(global_key, v), global_query


def _pooled(score: Tensor, x: Tensor, padding: Padding, dropout_p: float) -> Tensor:
    """Mean of ``x (B, H, T, D)`` weighted by the softmax of ``score (B, H, T)`` over time: ``(B, H, 1, D)``."""
    # Contiguous, because dropout's random numbers follow the memory layout.
    score = scaled_score(score, x).contiguous()
    padded = None if padding.mask is None else padding.mask[:, None, :]
    weights = drop(masked_softmax(score, padded, dim=-1), dropout_p)
    with full_precision(x):
        return _weighted_sum(weights, x.to(weights.dtype)).to(x.dtype)


def _weighted_sum(weights: Tensor, x: Tensor) -> Tensor:
    """``weights (B, H, T)`` times ``x (B, H, T, D)``, summed over time: ``(B, H, 1, D)``.

    One matrix product may add its terms one after the other: over 100,000 equal terms fp32 loses three digits. A sum
    of block sums keeps them.
    """
    weights = weights[:, :, None]
    steps = x.shape[2]
    if isinstance(steps, torch.SymInt) or steps <= LONGEST_SUM:  # a graph for every number of steps has one form
        return weights @ x
    weights = in_chunks(weights, LONGEST_SUM, dim=-1).transpose(2, 3)
    return (weights @ in_chunks(x, LONGEST_SUM, dim=-2)).sum(2)
