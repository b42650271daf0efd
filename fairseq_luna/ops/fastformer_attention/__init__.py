"""Fastformer's additive attention: pool the queries, pool the keys, and give each step the pooled vectors."""

from .chunked import fastformer_causal_attention
from .fused import fastformer_attention
from .maps import FastformerMaps
from .recurrent import FastformerState, fastformer_causal_attention_step, initial_state

__all__ = [
    "FastformerMaps",
    "FastformerState",
    "fastformer_attention",
    "fastformer_causal_attention",
    "fastformer_causal_attention_step",
    "initial_state",
]
