"""Softmax attention of each step to the steps of its pattern: local, top-k, strided, Longformer's and BigBird's."""

from .chunked import pattern_attention
from .fused import topk_attention
from .recurrent import Cache, pattern_attention_step, with_step
from .shared import Pattern, RandomBlocks, Strided, TopK, Window

__all__ = [
    "Cache",
    "Pattern",
    "RandomBlocks",
    "Strided",
    "TopK",
    "Window",
    "pattern_attention",
    "pattern_attention_step",
    "topk_attention",
    "with_step",
]
