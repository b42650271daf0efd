"""Learned maps as functions, and scaled scores."""

from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor

from ..dtypes import accumulation_dtype


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


def scaled_score(score: Tensor, q: Tensor) -> Tensor:
    """``score (B, H, T)`` times 1/sqrt(D), in fp32 if ``q (B, H, T, D)`` is half precision."""
    return score.to(accumulation_dtype(q)) * q.shape[-1] ** -0.5
