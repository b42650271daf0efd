"""Causal generation form: O(D) work and state per head and step."""

from typing import NamedTuple

from torch import Tensor

from ..dropout import drop_steps
from ..padding import PaddingLike
from ..prefix_softmax import RunningSoftmax, prefix_softmax_step
from .shared import FastformerMaps


class FastformerState(NamedTuple):
    """The running softmaxes of queries and keys (:class:`~..prefix_softmax.RunningSoftmax`)."""

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
    """One step of :func:`.naive.fastformer_causal_attention`: its arguments with T = 1; first the state is None.

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
