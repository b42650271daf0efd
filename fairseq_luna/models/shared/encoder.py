"""fairseq's transformer encoder with another self-attention."""

from typing import Any

from fairseq.models.transformer import TransformerEncoderBase
from torch import Tensor, nn

from ...ops.once_per_batch import one_pass
from ...ops.real_steps import lengths_of
from .attentions import BuildAttention
from .layers import SelfAttentionEncoderLayer, wrap_layer
from .source_rows import EncoderOut, encoder_out, reordered


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
        padding_mask = src_tokens.eq(self.padding_idx)
        masks = [padding_mask] if padding_mask.any() else []  # the one number that a GPU is asked for
        x, embedding = self.forward_embedding(src_tokens, token_embeddings)
        if masks:
            x = x.masked_fill(padding_mask[..., None], 0)
        x = x.transpose(0, 1).contiguous()
        states = [x] if return_all_hiddens else []
        for layer in self.layers:
            x = layer(x, masks[0] if masks else None)
            if return_all_hiddens:
                states.append(x)
        if self.layer_norm is not None:
            x = self.layer_norm(x)
        return encoder_out(x, embedding, masks, lengths_of(padding_mask), states)

    def reorder_encoder_out(self, encoder_out: EncoderOut, new_order: Tensor) -> EncoderOut:
        """Select the rows ``new_order`` of the batch, which the decoder does when it reads them."""
        return reordered(encoder_out, new_order)
