"""The registered architectures."""

from . import block, fastformer, luna

__all__ = ["block", "fastformer", "luna"]
