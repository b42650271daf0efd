"""Causal linear attention as a running mean: ``F_t = (1/t) q_t sum over j <= t of k_j v_j^T``."""

from .chunked import prefix_attention, step_counts, step_weights, sums_and_states
from .recurrent import PrefixMean, advance, initial_prefix_mean, prefix_mean_of

__all__ = [
    "PrefixMean",
    "advance",
    "initial_prefix_mean",
    "prefix_attention",
    "prefix_mean_of",
    "step_counts",
    "step_weights",
    "sums_and_states",
]
