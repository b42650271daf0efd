"""External attention: attention to learned slots, whose weights are relative to those of the other steps."""

from .fused import external_attention, external_causal_attention
from .recurrent import SlotMeans, external_causal_attention_step

__all__ = [
    "SlotMeans",
    "external_attention",
    "external_causal_attention",
    "external_causal_attention_step",
]
