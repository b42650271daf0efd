"""Luna: linear unified nested attention (arXiv 2106.01540)."""

from ..named_architectures import register_architectures
from .architectures import ARCHITECTURES
from .model import LunaModel

register_architectures("luna", ARCHITECTURES)

__all__ = ["ARCHITECTURES", "LunaModel"]
