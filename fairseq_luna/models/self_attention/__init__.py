"""Encoder-decoders whose self-attention is exchanged and whose attention to the source is fairseq's own."""

from .config import SELF_ATTENTION_REFUSED
from .decoder import SelfAttentionDecoder
from .encoder import SelfAttentionEncoder

__all__ = ["SELF_ATTENTION_REFUSED", "SelfAttentionDecoder", "SelfAttentionEncoder"]
