"""Attention by products of features of queries and keys: linear, Performer, RFA, and efficient attention."""

from .chunked import kernel_causal_attention
from .fused import kernel_attention, kernel_mean_of, kernel_weights, read_kernel_mean
from .recurrent import kernel_causal_attention_step
from .shared import NORMALISERS

__all__ = [
    "NORMALISERS",
    "kernel_attention",
    "kernel_causal_attention",
    "kernel_causal_attention_step",
    "kernel_mean_of",
    "kernel_weights",
    "read_kernel_mean",
]
