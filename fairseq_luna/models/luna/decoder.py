"""Luna's decoder: fairseq's transformer decoder, carrying on the encoder's packed sequence."""

from typing import Any

from fairseq.models.transformer import TransformerDecoderBase
from torch import Tensor, nn

from ...modules.generation_state import IncrementalState
from ...usage_error import UsageError
from ..word_dropout import WordDropout
from ..wrapping import wrap_layer
from .encoder import EncoderOut
from .layers import LunaDecoderLayer


class LunaDecoder(TransformerDecoderBase):
    """Predicts the target token by token; its generation state does not grow with their number.

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
        self.need_attn = False

    def build_decoder_layer(self, cfg: Any, no_encoder_attn: bool = False) -> nn.Module:
        self.layers_built += 1
        return wrap_layer(LunaDecoderLayer(cfg, last=self.layers_built == cfg.decoder.layers), cfg)

    def make_generation_fast_(self, *, need_attn: Any = False, **kwargs: Any) -> None:
        """Called by fairseq-generate: ``need_attn`` is what --print-alignment was given, False if it was not."""
        self.need_attn = bool(need_attn)

    def extract_features_scriptable(
        self,
        prev_output_tokens: Tensor,
        encoder_out: EncoderOut | None,
        incremental_state: IncrementalState | None = None,
        full_context_alignment: bool = False,
        alignment_layer: int | None = None,
        alignment_heads: int | None = None,
    ) -> tuple[Tensor, dict[str, list[Tensor | None]]]:
        """The decoder without its output layer.

        Attention to the source is quadratic to write down, so it is returned only where somebody asks for it: with
        fairseq-generate's --print-alignment, or for an explicit ``alignment_layer``.

        Args:
            prev_output_tokens: ``(B, T)``; with ``incremental_state`` only the last of them is read.
            encoder_out: from :class:`.encoder.LunaEncoder`.
            incremental_state: fairseq's generation state.
            full_context_alignment: refused; a causal attention cannot look ahead.
            alignment_layer: whose attention to return; None = the last.
            alignment_heads: average over the first so many heads; None = all.

        Returns:
            ``(B, T, C)``, and a dictionary of ``attn``, the attention ``(B, T, S)`` or None, and
            ``inner_states``, the input and output of each layer ``(T, B, C)``.
        """
        if full_context_alignment:
            raise UsageError("full_context_alignment: Luna's decoder is causal by construction; leave it out")
        if encoder_out is None:
            raise UsageError("Luna's decoder reads the encoder's packed sequence: encoder_out is needed")
        aligned = None
        if self.need_attn or alignment_layer is not None:
            aligned = self.num_layers - 1 if alignment_layer is None else alignment_layer

        x, padding_mask = self.embed(prev_output_tokens, incremental_state)
        # From the second step of generation on, every layer has what it needs of the packed sequence.
        first_step = self.layers[0].self_attn.load_state(incremental_state) is None
        packed = encoder_out["packed_out"][0] if first_step else None
        encoder_mask, packed_mask = self.source_masks(encoder_out)

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
                attn = weights[:alignment_heads].mean(dim=0)
        if self.layer_norm is not None:
            x = self.layer_norm(x)
        x = x.transpose(0, 1)
        if self.project_out_dim is not None:
            x = self.project_out_dim(x)
        return x, {"attn": [attn], "inner_states": inner_states}

    def embed(
        self, prev_output_tokens: Tensor, incremental_state: IncrementalState | None
    ) -> tuple[Tensor, Tensor | None]:
        """The first layer's input ``(T, B, C)``, the newest step alone in generation, and its padding or None."""
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
        padding_mask = prev_output_tokens.eq(self.padding_idx)
        return self.dropout_module(x).transpose(0, 1), padding_mask if padding_mask.any() else None

    @staticmethod
    def source_masks(encoder_out: EncoderOut) -> tuple[Tensor | None, Tensor | None]:
        """The padding of the source ``(B, S)`` and of the packed slots ``(B, L)``, each None if there is none."""
        encoder_mask = encoder_out["encoder_padding_mask"]
        packed_mask = encoder_out["packed_padding_mask"]
        return (
            encoder_mask[0] if encoder_mask and encoder_mask[0].any() else None,
            packed_mask[0] if packed_mask and packed_mask[0].any() else None,
        )
