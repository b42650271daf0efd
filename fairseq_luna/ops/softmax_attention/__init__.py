"""Scaled dot product attention with padded keys: pack and unpack in Luna's bidirectional attention."""

from .fused import (
    causal_softmax_attention,
    scaled_dot_product_attention,
    softmax_attention,
)

__all__ = [
    "causal_softmax_attention",
    "scaled_dot_product_attention",
    "softmax_attention",
]
