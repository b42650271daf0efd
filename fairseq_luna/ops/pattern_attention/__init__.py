"""Softmax attention of each step to the steps of its pattern: local, top-k, strided, Longformer's and BigBird's."""

from .chunked import pattern_attention
from .fused import topk_attention
from .recurrent import Cache, Ring, pattern_attention_step, ring_of, with_step
from .shared import Pattern, RandomBlocks, Strided, TopK, Window

__all__ = [
    "Cache",
    "Pattern",
    "RandomBlocks",
    "Ring",
    "Strided",
    "TopK",
    "Window",
    "pattern_attention",
    "pattern_attention_step",
    "ring_of",
    "topk_attention",
    "with_step",
]
