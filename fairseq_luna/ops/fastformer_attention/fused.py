"""The bidirectional form that trains: sums over time are matrix products."""

import torch
import torch.nn.functional as F
from torch import Tensor

from ..dropout import Dropout, no_dropout
from ..dtypes import accumulation_dtype
from .maps import FastformerMaps

LONGEST_SUM = 512  # steps that one matrix product adds up


def fastformer_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    maps: FastformerMaps,
    *,
    padding_mask: Tensor | None = None,
    dropout: Dropout = no_dropout,
) -> tuple[Tensor, Tensor]:
    """Fastformer's attention, bidirectional; :func:`.naive.fastformer_attention` states it.

    Args:
        q, k, v: ``(B, H, T, D)``.
        maps: w_q, w_k, combine_key and combine_value.
        padding_mask: ``(B, T)`` bool, True = padding.
        dropout: applied to the attention weights of queries and of keys.

    Returns:
        ``u (B, H, T, D)`` and the global query ``(B, H, 1, D)``, in the dtype of ``q``.
    """
    global_query = _pooled(maps.query_score(q), q, padding_mask, dropout)
    p = maps.combine_key(global_query, k)
    global_key = _pooled(maps.key_score(p), p, padding_mask, dropout)
    return maps.combine_value(global_key, v), global_query


def _pooled(score: Tensor, x: Tensor, padding_mask: Tensor | None, dropout: Dropout) -> Tensor:
    """Mean of ``x (B, H, T, D)`` under the softmax over time of ``score (B, H, T)``: ``(B, H, 1, D)``."""
    dtype = accumulation_dtype(x)
    # Weights in the order of their axes, whatever the layout of the scores: dropout's draws follow the layout.
    score = score.to(dtype).contiguous() * x.shape[-1] ** -0.5
    if padding_mask is None:
        weights = score.softmax(-1)
    else:
        padded = padding_mask[:, None, :]
        # Masked by a finite number and then for good: a row of nothing but padding is zero, with no NaN on the way.
        weights = score.masked_fill(padded, torch.finfo(dtype).min).softmax(-1).masked_fill(padded, 0)
    return _weighted_sum(dropout(weights), x.to(dtype)).to(x.dtype)


def _weighted_sum(weights: Tensor, x: Tensor) -> Tensor:
    """``weights (B, H, T)`` times ``x (B, H, T, D)``, summed over time: ``(B, H, 1, D)``.

    A matrix product may add its terms one by one, which costs fp32 three digits at 100,000 equal terms; the sum of
    the sums of blocks keeps them.
    """
    weights = weights[:, :, None]
    steps = x.shape[2]
    if steps <= LONGEST_SUM:
        return weights @ x
    filling = -steps % LONGEST_SUM
    weights = F.pad(weights, (0, filling)).unflatten(-1, (-1, LONGEST_SUM)).transpose(2, 3)
    blocks = F.pad(x, (0, 0, 0, filling)).unflatten(2, (-1, LONGEST_SUM))
    return (weights @ blocks).sum(2)
