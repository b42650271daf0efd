"""Fastformer's additive attention: pool the queries, pool the keys, and combine the results with each step."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from .chunks import split_into_chunks
from .dropout import drop, drop_steps
from .dtypes import accumulation_dtype, full_precision
from .masked_softmax import masked_softmax
from .padding import Padding, PaddingLike
from .prefix_softmax import (
    RunningSoftmax,
    prefix_softmax,
    prefix_softmax_reference,
    prefix_softmax_step,
    softmax_mean_reference,
)


@dataclass(frozen=True, kw_only=True)
class FastformerMaps:
    """The learned maps between the softmaxes. Each acts on every step separately.

    Args:
        query_score: w_q, one score per head from all heads' channels of a step: ``(B, H, T, D)`` to ``(B, H, T)``.
        key_score: w_k, the same for the keys combined with the global query.
        combine_key: global query and key to one vector: ``(B, H, T or 1, D), (B, H, T, D)`` to ``(B, H, T, D)``.
        combine_value: global key and value to one vector, with the same shapes.
    """

    query_score: Callable[[Tensor], Tensor]
    key_score: Callable[[Tensor], Tensor]
    combine_key: Callable[[Tensor, Tensor], Tensor]
    combine_value: Callable[[Tensor, Tensor], Tensor]


def fastformer_attention_reference(
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
    score = scaled_reference(maps.query_score(q), q)
    global_query = softmax_mean_reference(score, q * kept_reference(score, dropout_p), padding=padding_mask).to(q.dtype)
    p = maps.combine_key(global_query, k)
    score = scaled_reference(maps.key_score(p), q)
    global_key = softmax_mean_reference(score, p * kept_reference(score, dropout_p), padding=padding_mask).to(q.dtype)
    return maps.combine_value(global_key, v), global_query


def fastformer_causal_attention_reference(
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
    last global query equals the one of :func:`fastformer_attention_reference`; the last global key does so only if T =
    1.

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
    score = scaled_reference(maps.query_score(q), q)
    global_query = prefix_softmax_reference(score, q * kept_reference(score, dropout_p), padding=padding_mask).to(
        q.dtype
    )
    p = maps.combine_key(global_query, k)
    score = scaled_reference(maps.key_score(p), q)
    global_key = prefix_softmax_reference(score, p * kept_reference(score, dropout_p), padding=padding_mask).to(q.dtype)
    return maps.combine_value(global_key, v), global_query


def scaled_reference(score: Tensor, q: Tensor) -> Tensor:
    """``score (B, H, T)`` over sqrt(D), in fp32 for half precision."""
    return score.to(accumulation_dtype(q)) / math.sqrt(q.shape[-1])


def kept_reference(score: Tensor, dropout_p: float) -> Tensor:
    """The dropout factors d and e of the steps: ``(B, H, T, 1)``."""
    return F.dropout(score.new_ones(score.shape), dropout_p)[..., None]


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
    """The same function as :func:`fastformer_attention_reference`, by matrix products for the sums over time."""
    padding = Padding.of(padding)
    global_query = _softmax_weighted_mean(maps.query_score(q), q, padding, dropout_p)
    p = maps.combine_key(global_query, k)
    global_key = _softmax_weighted_mean(maps.key_score(p), p, padding, dropout_p)
    return maps.combine_value(global_key, v), global_query


def _softmax_weighted_mean(score: Tensor, x: Tensor, padding: Padding, dropout_p: float) -> Tensor:
    """Mean of ``x (B, H, T, D)`` weighted by the softmax of ``score (B, H, T)`` over time: ``(B, H, 1, D)``."""
    # Contiguous, because dropout draws its random numbers in the order of the memory.
    score = scaled_score(score, x).contiguous()
    padded = None if padding.mask is None else padding.mask[:, None, :]
    weights = drop(_with_sum_of_one(masked_softmax(score, padded, dim=-1)), dropout_p)
    with full_precision(x):
        return _weighted_sum(weights, x.to(weights.dtype)).to(x.dtype)


def _with_sum_of_one(weights: Tensor) -> Tensor:
    """Softmax weights ``(B, H, T)``, divided by their sum once more if there are many.

    Torch's softmax adds its terms one after the other, in as many lanes as the CPU has: see :func:`_weighted_sum`.
    """
    steps = weights.shape[2]
    if isinstance(steps, torch.SymInt) or steps <= LONGEST_SUM:
        return weights
    total = split_into_chunks(weights, LONGEST_SUM, dim=-1).sum(-1).sum(-1, keepdim=True)
    return weights / total.masked_fill(total == 0, 1)  # 0: everything is padding


def _weighted_sum(weights: Tensor, x: Tensor) -> Tensor:
    """``weights (B, H, T)`` times ``x (B, H, T, D)``, summed over time: ``(B, H, 1, D)``.

    A matrix product may add its terms one after the other: over 100,000 equal terms fp32 loses three digits. A sum of
    the sums of blocks keeps them.
    """
    weights = weights[:, :, None]
    steps = x.shape[2]
    if isinstance(steps, torch.SymInt) or steps <= LONGEST_SUM:  # a graph for any number of steps has one form
        return weights @ x
    weights = split_into_chunks(weights, LONGEST_SUM, dim=-1).transpose(2, 3)
    return (weights @ split_into_chunks(x, LONGEST_SUM, dim=-2)).sum(2)


def fastformer_causal_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    maps: FastformerMaps,
    *,
    padding: PaddingLike = None,
    dropout_p: float = 0.0,
) -> tuple[Tensor, Tensor]:
    """The same function as :func:`fastformer_causal_attention_reference`, linear in T: two prefix softmaxes."""
    padding = Padding.of(padding)
    score = scaled_score(maps.query_score(q), q)
    global_query = prefix_softmax(score, drop_steps(q, dropout_p), padding=padding).to(q.dtype)
    p = maps.combine_key(global_query, k)
    score = scaled_score(maps.key_score(p), q)
    global_key = prefix_softmax(score, drop_steps(p, dropout_p), padding=padding).to(q.dtype)
    return maps.combine_value(global_key, v), global_query


def scaled_score(score: Tensor, q: Tensor) -> Tensor:
    """``score (B, H, T)`` times 1/sqrt(D), in fp32 if ``q (B, H, T, D)`` is half precision."""
    return score.to(accumulation_dtype(q)) * q.shape[-1] ** -0.5


class FastformerState(NamedTuple):
    """The state of generation: running softmaxes (:class:`~.prefix_softmax.RunningSoftmax`) of queries and of keys."""

    query_log_denominator: Tensor  # (B, H, 1), fp64
    query_mean: Tensor  # (B, H, 1, D), the global query, in fp32 if the inputs are half precision
    key_log_denominator: Tensor  # (B, H, 1), fp64
    key_mean: Tensor  # (B, H, 1, D), the global key


def fastformer_causal_attention_step(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    maps: FastformerMaps,
    state: FastformerState | None,
    *,
    padding: PaddingLike = None,
    dropout_p: float = 0.0,
) -> tuple[Tensor, Tensor, FastformerState]:
    """One step of :func:`fastformer_causal_attention_reference`: its arguments with T = 1; first the state is None.

    It takes O(D) work and state per head.

    Returns:
        ``u (B, H, 1, D)``, the global query ``(B, H, 1, D)``, and the state after this step.
    """
    queries, keys = (None, None) if state is None else (RunningSoftmax(*state[:2]), RunningSoftmax(*state[2:]))
    scale = q.shape[-1] ** -0.5
    values = drop_steps(q, dropout_p)
    global_query, queries = prefix_softmax_step(maps.query_score(q) * scale, values, queries, padding=padding)
    global_query = global_query.to(q.dtype)
    p = maps.combine_key(global_query, k)
    values = drop_steps(p, dropout_p)
    global_key, keys = prefix_softmax_step(maps.key_score(p) * scale, values, keys, padding=padding)
    u = maps.combine_value(global_key.to(q.dtype), v)
    return u, global_query, FastformerState(*queries, *keys)
