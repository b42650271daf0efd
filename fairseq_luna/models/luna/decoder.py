"""Luna's decoder: fairseq's transformer decoder, which continues the encoder's packed sequence."""

from typing import Any

from torch import Tensor, nn

from ...modules.dropout import WordDropout
from ...modules.generation_state import IncrementalState
from ...ops.once_per_batch import one_pass
from ...usage_error import UsageError
from ..shared.decoder import CausalDecoder
from ..shared.layers import wrap_layer
from ..shared.source_rows import EncoderOut, selected_rows
from .layers import LunaDecoderLayer


class LunaDecoder(CausalDecoder):
    """Predicts the target token by token, with a generation state of constant size.

    Args:
        cfg: the nested config of :func:`.config.luna_config`.
        dictionary: of the target.
        embed_tokens: its embedding.
        no_encoder_attn: build layers without attention to the encoder's output.
    """

    def __init__(
        self,
        cfg: Any,
        dictionary: Any,
        embed_tokens: nn.Embedding,
        no_encoder_attn: bool = False,
        output_projection: nn.Module | None = None,
    ) -> None:
        self.layers_built = 0
        super().__init__(cfg, dictionary, embed_tokens, no_encoder_attn, output_projection)
        self.word_dropout = WordDropout(cfg.word_dropout)

    def build_decoder_layer(self, cfg: Any, no_encoder_attn: bool = False) -> nn.Module:
        self.layers_built += 1
        is_last = self.layers_built == cfg.decoder.layers
        return wrap_layer(LunaDecoderLayer(cfg, packed_is_read=not is_last, no_encoder_attn=no_encoder_attn), cfg)

    @one_pass
    def extract_features_scriptable(
        self,
        prev_output_tokens: Tensor,
        encoder_out: EncoderOut | None,
        incremental_state: IncrementalState | None = None,
        full_context_alignment: bool = False,
        alignment_layer: int | None = None,
        alignment_heads: int | None = None,
    ) -> tuple[Tensor, dict[str, list[Tensor | None]]]:
        """See :class:`fairseq.models.transformer.TransformerDecoderBase` for arguments and results.

        With ``incremental_state`` only the last token is read. ``encoder_out`` is from :class:`.encoder.LunaEncoder`;
        the attention ``(B, T, S)`` is returned as :meth:`aligned` says.

        Raises:
            UsageError: for ``full_context_alignment``, or without ``encoder_out``.
        """
        aligned, heads = self.aligned(alignment_layer, alignment_heads, full_context_alignment)
        if encoder_out is None:
            raise UsageError("encoder_out is needed: Luna's decoder reads the encoder's packed sequence")

        x, padding_mask = self.embed(prev_output_tokens, incremental_state)
        needs_packed = self.layers[0].needs_packed(incremental_state, need_weights=False) or (
            aligned in range(self.num_layers)
            and self.layers[aligned].needs_packed(incremental_state, need_weights=True)
        )
        packed = encoder_mask = packed_mask = None
        if needs_packed:
            encoder_out = selected_rows(encoder_out)
            packed = encoder_out["packed_out"][0]
            encoder_mask, packed_mask = (
                encoder_out[name][0] if encoder_out[name] else None
                for name in ("encoder_padding_mask", "packed_padding_mask")
            )

        attn: Tensor | None = None
        inner_states: list[Tensor | None] = [x]
        for index, layer in enumerate(self.layers):
            x, packed, weights = layer(
                x,
                packed,
                encoder_out["encoder_out"][0],
                encoder_padding_mask=encoder_mask,
                packed_padding_mask=packed_mask,
                padding_mask=padding_mask,
                incremental_state=incremental_state,
                need_weights=index == aligned,
            )
            inner_states.append(x)
            if weights is not None:
                attn = weights[:heads].mean(dim=0)
        if self.layer_norm is not None:
            x = self.layer_norm(x)
        x = x.transpose(0, 1)
        if self.project_out_dim is not None:
            x = self.project_out_dim(x)
        return x, {"attn": [attn], "inner_states": inner_states}

    def embed(
        self, prev_output_tokens: Tensor, incremental_state: IncrementalState | None
    ) -> tuple[Tensor, Tensor | None]:
        """The first layer's input ``(T, B, C)``, in generation only the newest step, and its padding mask or None."""
        positions = None
        if self.embed_positions is not None:
            positions = self.embed_positions(prev_output_tokens, incremental_state=incremental_state)
        if incremental_state is not None:
            prev_output_tokens = prev_output_tokens[:, -1:]
            positions = None if positions is None else positions[:, -1:]
        x = self.embed_scale * self.word_dropout(self.embed_tokens(prev_output_tokens))
        if self.quant_noise is not None:
            x = self.quant_noise(x)
        if self.project_in_dim is not None:
            x = self.project_in_dim(x)
        if positions is not None:
            x = x + positions
        if self.layernorm_embedding is not None:
            x = self.layernorm_embedding(x)
        x = self.dropout_module(x).transpose(0, 1).contiguous()
        if incremental_state is not None and self.generates:
            return x, None
        padding_mask = prev_output_tokens.eq(self.padding_idx)
        return x, padding_mask if padding_mask.any() else None
