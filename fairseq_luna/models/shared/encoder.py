"""fairseq's transformer encoder with another self-attention."""

from typing import Any

from fairseq.models.transformer import TransformerEncoderBase
from torch import Tensor, nn

from ...ops.padding import Padding
from .attention_building import BuildAttention
from .layers import SelfAttentionEncoderLayer, wrap_layer
from .positions import positions_of_sequence
from .source_rows import EncoderOut, encoder_out, reordered
from .token_padding import TokenPaddingMixin


class PaddedEncoder(TokenPaddingMixin, TransformerEncoderBase):
    """fairseq's encoder with one :class:`.Padding` for positions and layers, whose output is not copied for beams."""

    def forward_embedding(
        self, src_tokens: Tensor, token_embedding: Tensor | None = None, padding: Padding | None = None
    ) -> tuple[Tensor, Tensor]:
        """The first layer's input, and the tokens alone: each ``(B, T, C)`` for ``src_tokens (B, T)``."""
        tokens = self.embed_tokens(src_tokens) if token_embedding is None else token_embedding
        x = tokens = self.embed_scale * tokens
        if padding is None:
            padding = Padding(src_tokens.eq(self.padding_idx))
        positions = positions_of_sequence(self.embed_positions, src_tokens.shape[1], padding)
        x = x if positions is None else x + positions
        if self.layernorm_embedding is not None:
            x = self.layernorm_embedding(x)
        x = self.dropout_module(x)
        return x if self.quant_noise is None else self.quant_noise(x), tokens

    def reorder_encoder_out(self, encoder_out: EncoderOut, new_order: Tensor) -> EncoderOut:
        """Select the rows ``new_order`` of the batch, which the decoder does when it reads them."""
        return reordered(encoder_out, new_order)


class SelfAttentionEncoder(PaddedEncoder):
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

    def forward_scriptable(
        self,
        src_tokens: Tensor,
        src_lengths: Tensor | None = None,
        return_all_hiddens: bool = False,
        token_embeddings: Tensor | None = None,
    ) -> EncoderOut:
        """Encode ``src_tokens (B, T)``.

        fairseq's own asks the device in every layer whether anything is padded, and always returns a mask.

        Returns:
            The dictionary of fairseq's encoder; without padding the list of masks is empty.
        """
        return self.encode(src_tokens, self.padding_of_tokens(src_tokens), return_all_hiddens, token_embeddings)

    def encode(
        self,
        src_tokens: Tensor,
        padding: Padding,
        return_all_hiddens: bool = False,
        token_embeddings: Tensor | None = None,
    ) -> EncoderOut:
        """:meth:`forward_scriptable` for known ``padding`` of ``src_tokens (B, T)``: no branch depends on the data."""
        x, embedding = self.forward_embedding(src_tokens, token_embeddings, padding)
        if padding.mask is not None:
            x = x.masked_fill(padding.mask[..., None], 0)
        x = x.transpose(0, 1).contiguous()
        states = [x] if return_all_hiddens else []
        for layer in self.layers:
            x = layer(x, padding)
            if return_all_hiddens:
                states.append(x)
        if self.layer_norm is not None:
            x = self.layer_norm(x)
        return encoder_out(x, embedding, padding, states)
