"""Causal generation form: O(D) work and state per head and step."""

from typing import NamedTuple

from torch import Tensor

from ..dropout import drop_steps
from ..prefix_softmax import RunningSoftmax, initial_running_softmax, prefix_softmax_step
from .shared import FastformerMaps, scaled_score


class FastformerState(NamedTuple):
    """The running softmaxes of queries and keys, in fp32 if the inputs are half precision."""

    query_largest: Tensor  # (B, H)
    query_denominator: Tensor  # (B, H)
    query_mean: Tensor  # (B, H, D), the global query
    key_largest: Tensor  # (B, H)
    key_denominator: Tensor  # (B, H)
    key_mean: Tensor  # (B, H, D), the global key


def initial_state(q: Tensor) -> FastformerState:
    """The state before the first step, for queries of the shape, dtype and device of ``q (B, H, any T, D)``."""
    return FastformerState(*initial_running_softmax(q), *initial_running_softmax(q))


def fastformer_causal_attention_step(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    maps: FastformerMaps,
    state: FastformerState,
    *,
    padding_mask: Tensor | None = None,
    dropout_p: float = 0.0,
) -> tuple[Tensor, Tensor, FastformerState]:
    """One or more steps of :func:`.naive.fastformer_causal_attention`, continued from ``state``.

    Args:
        q, k, v: ``(B, H, T, D)``, usually T = 1.
        state: the state after the previous steps.
        maps, padding_mask, dropout_p: as in :mod:`.naive`.

    Returns:
        ``u (B, H, T, D)``, the global queries ``(B, H, T, D)``, and the state after these steps.
    """
    queries, keys = RunningSoftmax(*state[:3]), RunningSoftmax(*state[3:])
    score = scaled_score(maps.query_score(q), q)
    global_query, queries = prefix_softmax_step(score, drop_steps(q, dropout_p), queries, padding_mask=padding_mask)
    global_query = global_query.to(q.dtype)
    p = maps.combine_key(global_query, k)
    score = scaled_score(maps.key_score(p), q)
    global_key, keys = prefix_softmax_step(score, drop_steps(p, dropout_p), keys, padding_mask=padding_mask)
    u = maps.combine_value(global_key.to(q.dtype), v)
    return u, global_query, FastformerState(*queries, *keys)
