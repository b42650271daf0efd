"""Depthwise convolution over a few neighbouring steps."""

from .fused import short_convolution

__all__ = ["short_convolution"]
