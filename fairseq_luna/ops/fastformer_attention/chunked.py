"""Causal training form: two prefix softmaxes in blocks of time."""

from torch import Tensor

from ..dropout import drop_steps
from ..padding import Padding, PaddingLike
from ..prefix_softmax import prefix_softmax
from .shared import FastformerMaps, scaled_score


def fastformer_causal_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    maps: FastformerMaps,
    *,
    padding: PaddingLike = None,
    dropout_p: float = 0.0,
) -> tuple[Tensor, Tensor]:
    """Fastformer's causal attention, linear in T in time and memory.

    Args:
        q, k, v: ``(B, H, T, D)``.
        maps, padding, dropout_p: as in :func:`.naive.fastformer_causal_attention`.

    Returns:
        ``u (B, H, T, D)`` and the global queries ``(B, H, T, D)``, in the dtype of ``q``.
    """
    padding = Padding.of(padding)
    score = scaled_score(maps.query_score(q), q)
    global_query = prefix_softmax(score, drop_steps(q, dropout_p), padding=padding).to(q.dtype)
    p = maps.combine_key(global_query, k)
    score = scaled_score(maps.key_score(p), q)
    global_key = prefix_softmax(score, drop_steps(p, dropout_p), padding=padding).to(q.dtype)
    return maps.combine_value(global_key, v), global_query
