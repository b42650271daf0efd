"""Depthwise convolution over a few neighbouring steps: each channel by itself."""

from .fused import short_convolution

__all__ = ["short_convolution"]
