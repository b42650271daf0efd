"""The pyramid: block attention for many-to-one tasks, whose sequence is shorter after every layer."""

from .model import PyramidClassifier

__all__ = ["PyramidClassifier"]
