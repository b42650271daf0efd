"""Luna: linear unified nested attention (arXiv 2106.01540)."""

from .model import ARCHITECTURES, LunaModel

__all__ = ["ARCHITECTURES", "LunaModel"]
