"""Softmax attention of each step to the steps of its pattern: local, top-k, strided, Longformer's and BigBird's."""

from .pattern_generation import PatternCache, PatternRing, allocate_ring, pattern_attention_step, with_step
from .patterns import Pattern, RandomBlocks, Strided, TopK, Window
from .sparse_attention import pattern_attention, pattern_attention_reference
from .topk_attention import topk_attention, topk_attention_reference

__all__ = [
    "Pattern",
    "PatternCache",
    "PatternRing",
    "RandomBlocks",
    "Strided",
    "TopK",
    "Window",
    "allocate_ring",
    "pattern_attention",
    "pattern_attention_reference",
    "pattern_attention_step",
    "topk_attention",
    "topk_attention_reference",
    "with_step",
]
