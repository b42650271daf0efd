"""fairseq's transformer encoder with another self-attention."""

from typing import Any

from fairseq.models.transformer import TransformerEncoderBase
from torch import nn

from ..wrapping import wrap_layer
from .layers import SelfAttentionEncoderLayer
from .sharing import SharedChildren


class SelfAttentionEncoder(TransformerEncoderBase):
    """A subclass's method ``build_self_attention(cfg)`` gives the attention of a layer.

    Args:
        cfg: the nested config.
        dictionary: of the source.
        embed_tokens: its embedding.
        share_layers: all layers have the same attention.
    """

    def __init__(self, cfg: Any, dictionary: Any, embed_tokens: nn.Embedding, *, share_layers: bool) -> None:
        self.shared = SharedChildren() if share_layers else None
        super().__init__(cfg, dictionary, embed_tokens)

    def build_encoder_layer(self, cfg: Any) -> nn.Module:
        attention = self.build_self_attention(cfg)
        if self.shared is not None:
            attention = self.shared(attention)
        return wrap_layer(SelfAttentionEncoderLayer(cfg, attention), cfg)
