"""fairseq's transformer decoder with another self-attention."""

from typing import Any

from fairseq.models.transformer import TransformerDecoderBase
from torch import Tensor, nn

from ...modules.generation_state import IncrementalState
from ...usage_error import UsageError
from ..wrapping import wrap_layer
from .layers import SelfAttentionDecoderLayer
from .sharing import SharedChildren


class SelfAttentionDecoder(TransformerDecoderBase):
    """A subclass's method ``build_self_attention(cfg)`` gives the attention of a layer.

    Args:
        cfg: the nested config.
        dictionary: of the target.
        embed_tokens: its embedding.
        no_encoder_attn: build layers without attention to the encoder's output.
        share_layers: all layers have the same self-attention.
    """

    def __init__(
        self,
        cfg: Any,
        dictionary: Any,
        embed_tokens: nn.Embedding,
        no_encoder_attn: bool = False,
        *,
        share_layers: bool,
    ) -> None:
        self.shared = SharedChildren() if share_layers else None
        super().__init__(cfg, dictionary, embed_tokens, no_encoder_attn)
        self.need_attn = False

    def build_decoder_layer(self, cfg: Any, no_encoder_attn: bool = False) -> nn.Module:
        attention = self.build_self_attention(cfg)
        if self.shared is not None:
            attention = self.shared(attention)
        return wrap_layer(SelfAttentionDecoderLayer(cfg, attention, no_encoder_attn=no_encoder_attn), cfg)

    def make_generation_fast_(self, *, need_attn: Any = False, **kwargs: Any) -> None:
        """Called by fairseq-generate: ``need_attn`` is what --print-alignment was given, False if it was not."""
        self.need_attn = bool(need_attn)

    def buffered_future_mask(self, tensor: Tensor) -> None:
        """No mask, which would be quadratic: the self-attention is causal by construction."""

    def extract_features_scriptable(
        self,
        prev_output_tokens: Tensor,
        encoder_out: dict[str, list[Tensor]] | None,
        incremental_state: IncrementalState | None = None,
        full_context_alignment: bool = False,
        alignment_layer: int | None = None,
        alignment_heads: int | None = None,
    ) -> tuple[Tensor, dict[str, list[Tensor | None]]]:
        """fairseq's own, but for the attention to the source, which is returned only where somebody asks for it.

        That is, with fairseq-generate's --print-alignment, or for an explicit ``alignment_layer``. See
        :class:`fairseq.models.transformer.TransformerDecoderBase` for arguments and results.
        """
        if full_context_alignment:
            raise UsageError("full_context_alignment: this decoder is causal by construction; leave it out")
        nobody = -1
        if alignment_layer is None and not self.need_attn:
            alignment_layer = nobody
        return super().extract_features_scriptable(
            prev_output_tokens, encoder_out, incremental_state, full_context_alignment, alignment_layer, alignment_heads
        )
