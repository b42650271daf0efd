"""Attentions as ``nn.Module``: they own the projections and the generation state, and call the ops."""

from .luna_attention import LunaAttention
from .luna_causal_attention import LunaCausalAttention

__all__ = ["LunaAttention", "LunaCausalAttention"]
