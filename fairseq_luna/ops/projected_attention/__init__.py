"""Softmax attention between a sequence and few slots, the linear maps of the sequence included."""

from .folded import folding_pays, pack, scores_of, unpack
from .naive import Affine

__all__ = ["Affine", "folding_pays", "pack", "scores_of", "unpack"]
