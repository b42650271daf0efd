"""Synthesizer: softmax attention whose scores belong to pairs of positions, not of words."""

from .fused import position_attention, synthesizer_attention
from .recurrent import Values, next_positions, synthesizer_attention_step

__all__ = [
    "Values",
    "next_positions",
    "position_attention",
    "synthesizer_attention",
    "synthesizer_attention_step",
]
