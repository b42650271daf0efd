"""fairseq's transformer encoder with another self-attention."""

from typing import Any

from fairseq.models.transformer import TransformerEncoderBase
from torch import Tensor, nn

from ...ops.once_per_batch import one_pass
from .attentions import BuildAttention
from .layers import SelfAttentionEncoderLayer, wrap_layer
from .source_rows import EncoderOut, reordered


class SelfAttentionEncoder(TransformerEncoderBase):
    """An encoder of :class:`.layers.SelfAttentionEncoderLayer`.

    Args:
        cfg: the nested config.
        dictionary: of the source.
        embed_tokens: its embedding.
        build_self_attention: called with ``cfg`` for each layer; returns its self-attention.
    """

    def __init__(
        self, cfg: Any, dictionary: Any, embed_tokens: nn.Embedding, *, build_self_attention: BuildAttention
    ) -> None:
        self.build_self_attention = build_self_attention
        super().__init__(cfg, dictionary, embed_tokens)

    def build_encoder_layer(self, cfg: Any) -> nn.Module:
        return wrap_layer(SelfAttentionEncoderLayer(cfg, self.build_self_attention(cfg)), cfg)

    @one_pass
    def forward_scriptable(self, *arguments: Any, **options: Any) -> EncoderOut:
        return super().forward_scriptable(*arguments, **options)

    def reorder_encoder_out(self, encoder_out: EncoderOut, new_order: Tensor) -> EncoderOut:
        """Select the rows ``new_order`` of the batch, which the decoder does when it reads them."""
        return reordered(encoder_out, new_order)
