"""The causal form that generates: O(D) work and state for a head and a step, whatever its number."""

from typing import NamedTuple

from torch import Tensor

from ..dropout import Dropout, no_dropout
from ..prefix_softmax.recurrent import RunningSoftmax, initial_running_softmax, prefix_softmax_step
from .chunked import drop_steps, scaled_score
from .maps import FastformerMaps


class FastformerState(NamedTuple):
    """What one step hands to the next: the running softmaxes of the queries and of the keys.

    In fp32 when the inputs are half precision.
    """

    query_largest: Tensor  # (B, H)
    query_denominator: Tensor  # (B, H)
    query_mean: Tensor  # (B, H, D), the global query
    key_largest: Tensor  # (B, H)
    key_denominator: Tensor  # (B, H)
    key_mean: Tensor  # (B, H, D), the global key


def initial_state(q: Tensor) -> FastformerState:
    """The state before the first step, for queries like ``q (B, H, ., D)``."""
    return FastformerState(*initial_running_softmax(q), *initial_running_softmax(q))


def fastformer_causal_attention_step(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    maps: FastformerMaps,
    state: FastformerState,
    *,
    padding_mask: Tensor | None = None,
    dropout: Dropout = no_dropout,
) -> tuple[Tensor, Tensor, FastformerState]:
    """Take the next step, or a few: :func:`.naive.fastformer_causal_attention` continued from ``state``.

    Args:
        q, k, v: ``(B, H, T, D)``, usually T = 1.
        maps, padding_mask, dropout: as in :mod:`.naive`.
        state: what came before.

    Returns:
        ``u (B, H, T, D)``, the global queries ``(B, H, T, D)``, and the state after these steps.
    """
    queries, keys = RunningSoftmax(*state[:3]), RunningSoftmax(*state[3:])
    score = scaled_score(maps.query_score(q), q)
    global_query, queries = prefix_softmax_step(score, drop_steps(q, dropout), queries, padding_mask=padding_mask)
    global_query = global_query.to(q.dtype)
    p = maps.combine_key(global_query, k)
    score = scaled_score(maps.key_score(p), q)
    global_key, keys = prefix_softmax_step(score, drop_steps(p, dropout), keys, padding_mask=padding_mask)
    u = maps.combine_value(global_key.to(q.dtype), v)
    return u, global_query, FastformerState(*queries, *keys)
