"""Block attention: two levels, inside blocks and between them."""

from ..named_architectures import SIZES, register_architectures
from .model import BlockModel

ARCHITECTURES = {f"block_{name}": settings for name, settings in SIZES.items()}
register_architectures("block", ARCHITECTURES)

__all__ = ["ARCHITECTURES", "BlockModel"]
