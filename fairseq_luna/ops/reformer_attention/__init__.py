"""Reformer's attention: softmax attention to the steps with the same hash."""

from .chunked import reformer_attention

__all__ = ["reformer_attention"]
