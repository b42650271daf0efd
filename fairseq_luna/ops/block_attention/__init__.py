"""Two-level self-attention: among the steps of a block, and among the summaries of the blocks."""

from .by_length import block_attention, read_blocks
from .chunked import attention_within, unordered_block_attention
from .recurrent import BlockState, block_attention_step, unordered_block_attention_step, with_room

__all__ = [
    "BlockState",
    "attention_within",
    "block_attention",
    "block_attention_step",
    "read_blocks",
    "unordered_block_attention",
    "unordered_block_attention_step",
    "with_room",
]
