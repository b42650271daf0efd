"""FLASH's mixed chunk attention: squared scores inside a chunk of steps, linear attention to the other chunks."""

from .chunked import mixed_chunk_attention
from .recurrent import ChunkState, mixed_chunk_attention_step, with_room

__all__ = ["ChunkState", "mixed_chunk_attention", "mixed_chunk_attention_step", "with_room"]
