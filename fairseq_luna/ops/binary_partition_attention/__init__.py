"""BP-Transformer's attention: tokens nearby one by one, and tokens far away as spans of a binary tree."""

from .tree_attention import binary_partition_attention, binary_partition_attention_reference, seen_nodes
from .tree_generation import SpanCache, binary_partition_attention_step

__all__ = [
    "SpanCache",
    "binary_partition_attention",
    "binary_partition_attention_reference",
    "binary_partition_attention_step",
    "seen_nodes",
]
