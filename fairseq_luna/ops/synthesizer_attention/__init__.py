"""Synthesizer: softmax attention whose scores belong to pairs of positions, not of words."""

from .fused import position_attention, synthesizer_attention
from .recurrent import Values, columns_of_next, next_positions, synthesizer_attention_step, with_room

__all__ = [
    "Values",
    "columns_of_next",
    "next_positions",
    "position_attention",
    "synthesizer_attention",
    "synthesizer_attention_step",
    "with_room",
]
