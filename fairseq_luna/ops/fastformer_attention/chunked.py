"""The causal form that trains: two prefix softmaxes over blocks of time."""

from torch import Tensor

from ..dropout import Dropout, no_dropout
from ..dtypes import accumulation_dtype
from ..prefix_softmax.chunked import prefix_softmax
from .maps import FastformerMaps


def fastformer_causal_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    maps: FastformerMaps,
    *,
    padding_mask: Tensor | None = None,
    dropout: Dropout = no_dropout,
) -> tuple[Tensor, Tensor]:
    """Fastformer's causal attention; :func:`.naive.fastformer_causal_attention` states it.

    Linear in T in time and memory.

    Args:
        q, k, v: ``(B, H, T, D)``.
        maps: w_q, w_k, combine_key and combine_value.
        padding_mask: ``(B, T)`` bool, True = padding.
        dropout: applied to what a step gives to the means.

    Returns:
        ``u (B, H, T, D)`` and the global queries ``(B, H, T, D)``, in the dtype of ``q``.
    """
    score = scaled_score(maps.query_score(q), q)
    global_query = prefix_softmax(score, drop_steps(q, dropout), padding_mask=padding_mask).to(q.dtype)
    p = maps.combine_key(global_query, k)
    score = scaled_score(maps.key_score(p), q)
    global_key = prefix_softmax(score, drop_steps(p, dropout), padding_mask=padding_mask).to(q.dtype)
    return maps.combine_value(global_key, v), global_query


def scaled_score(score: Tensor, q: Tensor) -> Tensor:
    """``score (B, H, T)`` times 1/sqrt(D), widened first to the precision that sums are kept in."""
    return score.to(accumulation_dtype(q)) * q.shape[-1] ** -0.5


def drop_steps(x: Tensor, dropout: Dropout) -> Tensor:
    """Drop whole steps of each head of ``x (B, H, T, D)``: a step's weight is dropped by dropping its vector.

    What is left is scaled up in the precision that sums are kept in, which the result then has.
    """
    whole = x.new_ones(x.shape[:-1], dtype=accumulation_dtype(x))
    kept = dropout(whole)
    # A dropout that is switched off hands back its argument itself.
    return x if kept is whole else x * kept[..., None]
