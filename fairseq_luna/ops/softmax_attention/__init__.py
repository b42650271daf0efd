"""Scaled dot product attention with padded keys: what packs and unpacks in Luna's bidirectional form."""

from .fused import softmax_attention

__all__ = ["softmax_attention"]
