"""The specification: the equations, for a whole sentence and for the steps up to t."""

import math

from torch import Tensor

from ..dropout import Dropout, no_dropout
from ..dtypes import accumulation_dtype
from ..prefix_softmax.naive import prefix_softmax, softmax_mean
from .maps import FastformerMaps


def fastformer_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    maps: FastformerMaps,
    *,
    padding_mask: Tensor | None = None,
    dropout: Dropout = no_dropout,
) -> tuple[Tensor, Tensor]:
    """Fastformer's attention, bidirectional (arXiv 2108.09084, section 3.2).

        a = softmax over j of (w_q(q_j) / sqrt(D)),      gq = sum over j of a_j d_j q_j        global query
        p_j = combine_key(gq, k_j)
        b = softmax over j of (w_k(p_j) / sqrt(D)),      gk = sum over j of b_j e_j p_j        global key
        u_t = combine_value(gk, v_t)

    where j runs over the real steps, and d and e are 1, or under dropout 0 or 1/(1 - p).

    Args:
        q, k, v: ``(B, H, T, D)``.
        maps: w_q, w_k, combine_key and combine_value.
        padding_mask: ``(B, T)`` bool, True = padding: the step has no weight. Where all steps are padding, the
            global query and the global key are zero.
        dropout: applied to the attention weights a and b.

    Returns:
        ``u (B, H, T, D)`` and the global query ``(B, H, 1, D)``, in the dtype of ``q``; softmaxes and sums are
        taken in fp32 when ``q`` is half precision.
    """
    score = scaled(maps.query_score(q), q)
    global_query = softmax_mean(score, q * kept(score, dropout), padding_mask=padding_mask).to(q.dtype)
    p = maps.combine_key(global_query, k)
    score = scaled(maps.key_score(p), q)
    global_key = softmax_mean(score, p * kept(score, dropout), padding_mask=padding_mask).to(q.dtype)
    return maps.combine_value(global_key, v), global_query


def fastformer_causal_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    maps: FastformerMaps,
    *,
    padding_mask: Tensor | None = None,
    dropout: Dropout = no_dropout,
) -> tuple[Tensor, Tensor]:
    """Fastformer's attention when no step may see a later one (derived in ``docs/fastformer.md``).

        a_t = softmax over j <= t of (w_q(q_j) / sqrt(D)),     gq_t = sum over j <= t of a_tj d_j q_j
        p_j = combine_key(gq_j, k_j)
        b_t = softmax over j <= t of (w_k(p_j) / sqrt(D)),     gk_t = sum over j <= t of b_tj e_j p_j
        u_t = combine_value(gk_t, v_t)

    A key meets the global query of its own step and keeps it; d_j and e_j, too, are drawn once for a step and hold
    for all later ones. The last step's global query is that of :func:`fastformer_attention`; its global key is
    not, unless there is one step only.

    Args:
        q, k, v: ``(B, H, T, D)``.
        maps: w_q, w_k, combine_key and combine_value.
        padding_mask: ``(B, T)`` bool, True = padding: the step has no weight, wherever it stands. Before the first
            real step the global query and the global key are zero.
        dropout: applied to what a step gives to the means; the softmaxes' denominators are left whole.

    Returns:
        ``u (B, H, T, D)`` and the global queries ``(B, H, T, D)``, in the dtype of ``q``; softmaxes and sums are
        taken in fp32 when ``q`` is half precision.
    """
    score = scaled(maps.query_score(q), q)
    global_query = prefix_softmax(score, q * kept(score, dropout), padding_mask=padding_mask).to(q.dtype)
    p = maps.combine_key(global_query, k)
    score = scaled(maps.key_score(p), q)
    global_key = prefix_softmax(score, p * kept(score, dropout), padding_mask=padding_mask).to(q.dtype)
    return maps.combine_value(global_key, v), global_query


def scaled(score: Tensor, q: Tensor) -> Tensor:
    """``score (B, H, T)`` over sqrt(D), in fp32 for half precision."""
    return score.to(accumulation_dtype(q)) / math.sqrt(q.shape[-1])


def kept(score: Tensor, dropout: Dropout) -> Tensor:
    """What dropout leaves of each step's weight: ``(B, H, T, 1)``."""
    return dropout(score.new_ones(score.shape))[..., None]
