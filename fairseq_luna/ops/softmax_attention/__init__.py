"""Scaled dot product attention with padded keys: pack and unpack in Luna's bidirectional attention."""

from .fused import scaled_dot_product_attention, softmax_attention

__all__ = ["scaled_dot_product_attention", "softmax_attention"]
