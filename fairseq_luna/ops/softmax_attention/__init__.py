"""Scaled dot product attention with padded keys: pack and unpack in Luna's bidirectional attention."""

from .fused import (
    Source,
    additive_mask,
    causal_softmax_attention,
    padding_scores,
    read_source,
    scaled_dot_product_attention,
    softmax_attention,
    source_of,
)

__all__ = [
    "Source",
    "additive_mask",
    "causal_softmax_attention",
    "padding_scores",
    "read_source",
    "scaled_dot_product_attention",
    "softmax_attention",
    "source_of",
]
