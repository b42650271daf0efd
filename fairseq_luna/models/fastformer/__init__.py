"""Fastformer: additive attention through one global query and one global key (arXiv 2108.09084)."""

from ..named_architectures import SIZES, register_architectures
from .model import FastformerModel

ARCHITECTURES = {f"fastformer_{name}": settings for name, settings in SIZES.items()}
register_architectures("fastformer", ARCHITECTURES)

__all__ = ["ARCHITECTURES", "FastformerModel"]
