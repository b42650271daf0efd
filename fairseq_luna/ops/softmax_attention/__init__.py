"""Scaled dot product attention with padded keys: pack and unpack in Luna's bidirectional attention."""

from .fused import softmax_attention

__all__ = ["softmax_attention"]
