"""The registered architectures."""

from . import block, block_pyramid, fastformer, luna

__all__ = ["block", "block_pyramid", "fastformer", "luna"]
