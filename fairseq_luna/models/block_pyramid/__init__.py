"""The pyramid: block attention for many-to-one tasks; each layer shortens the sequence."""

from .model import PyramidClassifier

__all__ = ["PyramidClassifier"]
