"""Softmax attention between a sequence and a few slots, with the linear maps of the sequence folded into the slots."""

from .fused import folding_pays, pack, scores_of, unpack
from .shared import Affine

__all__ = ["Affine", "folding_pays", "pack", "scores_of", "unpack"]
