"""The registered architectures."""

from . import luna

__all__ = ["luna"]
