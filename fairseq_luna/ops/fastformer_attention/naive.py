"""Specification: the equations, bidirectional and causal."""

import math

import torch.nn.functional as F
from torch import Tensor

from ..dtypes import accumulation_dtype
from ..padding import Padding, PaddingLike
from ..prefix_softmax.naive import prefix_softmax, softmax_mean
from .shared import FastformerMaps


def fastformer_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    maps: FastformerMaps,
    *,
    padding: PaddingLike = None,
    dropout_p: float = 0.0,
) -> tuple[Tensor, Tensor]:
    """Fastformer's bidirectional attention (arXiv 2108.09084, section 3.2).

        a = softmax over j of (w_q(q_j) / sqrt(D)),      gq = sum over j of a_j d_j q_j        global query
        p_j = combine_key(gq, k_j)
        b = softmax over j of (w_k(p_j) / sqrt(D)),      gk = sum over j of b_j e_j p_j        global key
        u_t = combine_value(gk, v_t)

    with j over the real steps. d and e are 1, or with dropout either 0 or 1/(1 - p).

    Args:
        q, k, v: ``(B, H, T, D)``.
        maps: w_q, w_k, combine_key and combine_value.
        padding: ``(B, T)`` bool, True = padding: the step has no weight. If all steps are padding, the global
            query and the global key are zero.
        dropout_p: dropout probability of the attention weights a and b.

    Returns:
        ``u (B, H, T, D)`` and the global query ``(B, H, 1, D)``, in the dtype of ``q``. Softmaxes and sums are in
        fp32 if ``q`` is half precision.
    """
    padding_mask = Padding.of(padding).mask
    score = scaled(maps.query_score(q), q)
    global_query = softmax_mean(score, q * kept(score, dropout_p), padding=padding_mask).to(q.dtype)
    p = maps.combine_key(global_query, k)
    score = scaled(maps.key_score(p), q)
    global_key = softmax_mean(score, p * kept(score, dropout_p), padding=padding_mask).to(q.dtype)
    return maps.combine_value(global_key, v), global_query


def fastformer_causal_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    maps: FastformerMaps,
    *,
    padding: PaddingLike = None,
    dropout_p: float = 0.0,
) -> tuple[Tensor, Tensor]:
    """Fastformer's attention without access to later steps (derived in ``docs/mathematics.md``).

        a_t = softmax over j <= t of (w_q(q_j) / sqrt(D)),     gq_t = sum over j <= t of a_tj d_j q_j
        p_j = combine_key(gq_j, k_j)
        b_t = softmax over j <= t of (w_k(p_j) / sqrt(D)),     gk_t = sum over j <= t of b_tj e_j p_j
        u_t = combine_value(gk_t, v_t)

    A key is combined with the global query of its own step; p_j, d_j and e_j are the same for all later steps t. The
    last global query equals that of :func:`fastformer_attention`; the last global key does so only if T = 1.

    Args:
        q, k, v: ``(B, H, T, D)``.
        maps: w_q, w_k, combine_key and combine_value.
        padding: ``(B, T)`` bool, True = padding: the step has no weight, at any position. Before the first real
            step the global query and the global key are zero.
        dropout_p: dropout probability of each step in the means; the softmax denominators include dropped steps.

    Returns:
        ``u (B, H, T, D)`` and the global queries ``(B, H, T, D)``, in the dtype of ``q``. Softmaxes and sums are in
        fp32 if ``q`` is half precision.
    """
    padding_mask = Padding.of(padding).mask
    score = scaled(maps.query_score(q), q)
    global_query = prefix_softmax(score, q * kept(score, dropout_p), padding=padding_mask).to(q.dtype)
    p = maps.combine_key(global_query, k)
    score = scaled(maps.key_score(p), q)
    global_key = prefix_softmax(score, p * kept(score, dropout_p), padding=padding_mask).to(q.dtype)
    return maps.combine_value(global_key, v), global_query


def scaled(score: Tensor, q: Tensor) -> Tensor:
    """``score (B, H, T)`` over sqrt(D), in fp32 for half precision."""
    return score.to(accumulation_dtype(q)) / math.sqrt(q.shape[-1])


def kept(score: Tensor, dropout_p: float) -> Tensor:
    """The dropout factors of the steps: ``(B, H, T, 1)``."""
    return F.dropout(score.new_ones(score.shape), dropout_p)[..., None]
