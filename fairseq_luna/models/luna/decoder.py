"""Luna's decoder: fairseq's transformer decoder, which continues the encoder's packed sequence."""

from typing import Any

from torch import Tensor, nn

from ...modules.decoding_state import repeat_rows
from ...modules.dropout import WordDropout
from ...usage_error import UsageError
from ..shared.decoder import CausalDecoder, WholeSequence
from ..shared.generation import NO_LAYER, DecoderSource
from ..shared.layers import wrap_layer
from ..shared.source_rows import EncoderOut, padding_from, selected_rows
from .layers import LunaDecoderLayer


class LunaDecoder(CausalDecoder):
    """Predicts the target token by token, with a generation state of constant size.

    Args:
        cfg: the nested config of :func:`.config.luna_config`.
        dictionary: of the target.
        embed_tokens: its embedding.
        no_encoder_attn: build layers without cross-attention.
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

    def whole_sequence(
        self, prev_output_tokens: Tensor, encoder_out: EncoderOut | None, weights_layer: int
    ) -> WholeSequence:
        x, padding = self.embed_sequence(prev_output_tokens)
        encoder_out = selected_rows(require_encoder_out(encoder_out))
        [packed], [source] = encoder_out["packed_out"], encoder_out["encoder_out"]
        paddings = {
            "padding": padding,
            "packed_padding": padding_from(encoder_out["packed_padding_mask"]),
            "source_padding": padding_from(encoder_out["encoder_padding_mask"]),
        }
        weights: Tensor | None = None
        inner_states: list[Tensor | None] = [x]
        for index, layer in enumerate(self.layers):
            x, packed, layer_weights = layer(x, packed, source, **paddings, need_weights=index == weights_layer)
            inner_states.append(x)
            weights = weights if layer_weights is None else layer_weights
        return WholeSequence(self.features_of(x), weights, inner_states)

    def read_source(self, encoder_out: EncoderOut | None, *, weights_layer: int = NO_LAYER) -> DecoderSource:
        encoder_out = require_encoder_out(encoder_out)
        [packed], [source] = encoder_out["packed_out"], encoder_out["encoder_out"]
        padding = padding_from(encoder_out["encoder_padding_mask"])
        layers = []
        for index, layer in enumerate(self.every_layer()):
            options = {"need_weights": index == weights_layer, "method": "read_source"}
            cached, packed = layer(packed, source, padding, **options)
            layers.append(cached)
        return DecoderSource(padding, padding_from(encoder_out["packed_padding_mask"]), tuple(layers))

    def initial_state(self, source: DecoderSource, encoder_out: EncoderOut | None, *, beams: int = 1) -> Any:
        [output], states = require_encoder_out(encoder_out)["encoder_out"], []
        for layer, cached in zip(self.every_layer(), source.layers, strict=True):
            [state] = layer(cached, output, source.padding, method="initial_state")
            states.append(repeat_rows(state, beams))
        return tuple(states)

    def embed_tokens_only(self, tokens: Tensor) -> Tensor:
        return self.word_dropout(self.embed_tokens(tokens))


def require_encoder_out(encoder_out: EncoderOut | None) -> EncoderOut:
    """The same, which is needed in any case. Raises UsageError for None."""
    if encoder_out is None:
        raise UsageError("encoder_out is needed: Luna's decoder reads the encoder's packed sequence")
    return encoder_out
