"""Nystrom attention: softmax attention through the means of consecutive steps, the landmarks."""

from .fused import nystrom_attention

__all__ = ["nystrom_attention"]
