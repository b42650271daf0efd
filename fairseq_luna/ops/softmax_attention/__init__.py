"""Scaled dot product attention with padded keys: pack and unpack in Luna's bidirectional attention."""

from .fused import additive_mask, mask_of_scores, scaled_dot_product_attention, softmax_attention

__all__ = ["additive_mask", "mask_of_scores", "scaled_dot_product_attention", "softmax_attention"]
