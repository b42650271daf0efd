"""Fastformer's additive attention: pool the queries, pool the keys, and combine the results with each step."""

from .chunked import fastformer_causal_attention
from .fused import fastformer_attention
from .recurrent import FastformerState, fastformer_causal_attention_step
from .shared import FastformerMaps

__all__ = [
    "FastformerMaps",
    "FastformerState",
    "fastformer_attention",
    "fastformer_causal_attention",
    "fastformer_causal_attention_step",
]
