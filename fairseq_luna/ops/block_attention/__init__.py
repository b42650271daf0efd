"""Two-level self-attention: among the steps of a block, and among the summaries of the blocks."""

from .block_generation import BlockState, allocate_block_state, block_attention_step, unordered_block_attention_step
from .two_level_attention import (
    attention_within,
    block_attention,
    block_attention_reference,
    read_blocks,
    unordered_block_attention,
    unordered_block_attention_reference,
)

__all__ = [
    "BlockState",
    "allocate_block_state",
    "attention_within",
    "block_attention",
    "block_attention_reference",
    "block_attention_step",
    "read_blocks",
    "unordered_block_attention",
    "unordered_block_attention_reference",
    "unordered_block_attention_step",
]
