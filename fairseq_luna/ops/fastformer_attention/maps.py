"""What Fastformer's attention learns, handed to the ops as functions."""

from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True, kw_only=True)
class FastformerMaps:
    """The learned maps between the softmaxes. Each treats every step alike, and a step by itself.

    Args:
        query_score: w_q, one score per head from a step's whole vector: ``(B, H, T, D)`` to ``(B, H, T)``.
        key_score: w_k, the same for the keys that have met the global query.
        combine_key: global query and key to one vector: ``(B, H, T or 1, D), (B, H, T, D)`` to ``(B, H, T, D)``.
        combine_value: global key and value to one vector, with the same shapes.
    """

    query_score: Callable[[Tensor], Tensor]
    key_score: Callable[[Tensor], Tensor]
    combine_key: Callable[[Tensor, Tensor], Tensor]
    combine_value: Callable[[Tensor, Tensor], Tensor]
