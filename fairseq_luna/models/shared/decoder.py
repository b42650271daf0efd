"""fairseq's transformer decoder with another self-attention, which is causal without a mask."""

from collections.abc import Iterator
from typing import Any, NamedTuple

from fairseq.models.transformer import TransformerDecoderBase
from torch import Tensor, nn

from ...ops.padding import Padding, PaddingLike
from ...usage_error import UsageError
from .attention_building import BuildAttention, softmax_cross_attention
from .generation import KEY, NO_LAYER, DecoderSource, DecoderStep, Generation, IncrementalState
from .layers import SelfAttentionDecoderLayer, wrap_layer
from .positions import position_of_step, positions_of_sequence
from .source_rows import EncoderOut, padding_from, selected_rows
from .token_padding import TokenPaddingMixin


class WholeSequence(NamedTuple):
    """The results of a decoder for all steps of a batch."""

    features: Tensor  # (B, T, C), the input of the output layer
    weights: Tensor | None  # (H, B, T, S), cross-attention weights of the layer that was asked for them
    inner_states: list[Tensor | None]  # each (T, B, C): the first layer's input, then the output of each layer


class CausalDecoder(TokenPaddingMixin, TransformerDecoderBase):
    """A decoder whose self-attention is causal by construction.

    A subclass has :meth:`whole_sequence` and :meth:`read_source`, and its layers are :class:`.layers.DecoderLayer`. Its
    :meth:`step` is a pure function, which fairseq calls through :meth:`extract_features_scriptable`.

    Cross-attention weights are quadratic in size. They are returned only on request: with fairseq-generate's
    --print-alignment, with --load-alignments in training, or for an explicit ``alignment_layer``.
    """

    need_attn = False
    # Set for generation, in which no token is padding: a step need not wait for the device to look for some.
    generates = False

    def make_generation_fast_(self, *, need_attn: Any = False, **kwargs: Any) -> None:
        """Called by fairseq-generate; ``need_attn`` is the value of --print-alignment, False if it is not given."""
        self.need_attn = bool(need_attn)
        self.generates = True

    def whole_sequence(
        self, prev_output_tokens: Tensor, encoder_out: EncoderOut | None, weights_layer: int
    ) -> WholeSequence:
        """All steps of ``prev_output_tokens (B, T)``; ``weights_layer`` is a layer, or ``NO_LAYER``."""
        raise NotImplementedError

    def read_source(self, encoder_out: EncoderOut | None, *, weights_layer: int = NO_LAYER) -> DecoderSource:
        """Read the encoder's output for all steps of generation, with one row for each sentence.

        Args:
            encoder_out: the encoder's dictionary; None if there is no cross-attention.
            weights_layer: the layer whose cross-attention weights the steps may ask for.
        """
        raise NotImplementedError

    def initial_state(self, source: DecoderSource, encoder_out: EncoderOut | None, *, beams: int = 1) -> Any:
        """The state before the first step, for as many ``beams`` of each sentence; None: the first step makes it."""
        return None

    def step(
        self,
        tokens: Tensor,
        position: Tensor | int,
        source: DecoderSource,
        state: Any,
        *,
        padding: PaddingLike = None,
    ) -> tuple[Tensor, Any]:
        """One step of generation, a pure function of tensors.

        Args:
            tokens: ``(B,)`` int64, the newest token of each row; consecutive rows are the beams of a sentence.
            position: of these tokens, from 0: a tensor ``(1,)`` int64, with which a graph serves any position, or a
                number, with which the embedding is read without a copy.
            source: the result of :meth:`read_source`; B is a multiple of its rows.
            state: the second result of the step before, at first :meth:`initial_state`: NamedTuples of
                tensors, whose first dimension is B. :mod:`...modules.decoding_state` selects rows of it, and makes a
                dictionary of its tensors.
            padding: where a token is padding, ``(B, 1)`` bool; None: no token is.

        Returns:
            Logits ``(B, V)``, with adaptive softmax the features ``(B, C)`` instead; and the state after this step.
        """
        output = self.step_features(tokens, position, source, state, padding=Padding.of(padding))
        return self.output_layer(output.features).squeeze(1), output.state

    def step_features(
        self,
        tokens: Tensor,
        position: Tensor | int,
        source: DecoderSource,
        state: Any,
        *,
        padding: Padding,
        weights_layer: int = NO_LAYER,
    ) -> DecoderStep:
        """:meth:`step` before the output layer, and what fairseq's decoder returns with it.

        ``weights_layer`` is the layer whose cross-attention weights are returned, for which the source was read.
        """
        weights, states = None, []
        x = self.embed(tokens[:, None], position_of_step(self.embed_positions, position))
        inner_states: list[Tensor | None] = [x]
        for index, (layer, cached) in enumerate(zip(self.every_layer(), source.layers, strict=True)):
            before = None if state is None else state[index]
            options = {"need_weights": index == weights_layer, "method": "step"}
            x, after, layer_weights = layer(x, padding, cached, source, before, **options)
            inner_states.append(x)
            states.append(after)
            weights = weights if layer_weights is None else layer_weights
        return DecoderStep(self.features_of(x), tuple(states), weights, inner_states)

    def with_room(self, state: Any, max_steps: int) -> Any:
        """The ``state`` after a step with a fixed shape for at most ``max_steps`` steps, the past ones included.

        A step of the result changes no shape.
        """
        attentions: Iterator[Any] = (layer.self_attn for layer in self.every_layer())
        return tuple(each.with_room(past, max_steps) for each, past in zip(attentions, state, strict=True))

    def every_layer(self) -> Iterator[nn.Module]:
        """All layers, for generation. In training an iteration over them leaves some out for --decoder-layerdrop."""
        return self.layers.children()

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

        With ``incremental_state`` only the last token is read, and ``encoder_out`` only at the first step and at the
        first that returns cross-attention weights.

        Raises:
            UsageError: for ``full_context_alignment``, or for weights without cross-attention.
        """
        weights_layer, heads = self.requested_weights(alignment_layer, alignment_heads, full_context_alignment)
        output: WholeSequence | DecoderStep
        if incremental_state is None:
            output = self.whole_sequence(prev_output_tokens, encoder_out, weights_layer)
        else:
            output = self.incremental_step(prev_output_tokens, encoder_out, incremental_state, weights_layer)
        attention = None if output.weights is None else output.weights[:heads].mean(dim=0)
        return output.features, {"attn": [attention], "inner_states": output.inner_states}

    def incremental_step(
        self,
        prev_output_tokens: Tensor,
        encoder_out: EncoderOut | None,
        incremental_state: IncrementalState,
        weights_layer: int,
    ) -> DecoderStep:
        """:meth:`step_features` for fairseq, with source and state stored in its dictionary."""
        rows, length = prev_output_tokens.shape
        entry: Generation | None = incremental_state.get(KEY)
        if entry is None or weights_layer not in (NO_LAYER, entry.weights_layer):
            if encoder_out is not None:
                encoder_out = selected_rows(encoder_out)
            source = self.read_source(encoder_out, weights_layer=weights_layer)
            beams = rows // (source.sentences or rows or 1)
            state = self.initial_state(source, encoder_out, beams=beams) if entry is None else entry.state
            entry = Generation(source, state, rows, weights_layer)
        tokens = prev_output_tokens[:, -1]
        padding = Padding() if self.generates else self.padding_of_tokens(tokens[:, None])
        output = self.step_features(
            tokens, length - 1, entry.source, entry.state, padding=padding, weights_layer=weights_layer
        )
        incremental_state[KEY] = entry._replace(state=output.state)
        return output

    def reorder_incremental_state(self, incremental_state: IncrementalState, new_order: Tensor) -> None:
        """Called by fairseq's generator when it selects beams or removes finished sentences."""
        if KEY in incremental_state:
            incremental_state[KEY] = incremental_state[KEY].reordered(new_order)

    def buffered_future_mask(self, tensor: Tensor) -> None:
        """No mask: it would be quadratic, and the self-attention is causal without it."""

    def embed_sequence(self, prev_output_tokens: Tensor) -> tuple[Tensor, Padding]:
        """The first layer's input ``(T, B, C)`` for whole sequences, and their padding."""
        padding = self.padding_of_tokens(prev_output_tokens)
        positions = positions_of_sequence(self.embed_positions, prev_output_tokens.shape[1], padding)
        # All layers get the same strides, for which a compiled layer is one graph.
        return self.embed(prev_output_tokens, positions).contiguous(), padding

    def embed(self, tokens: Tensor, positions: Tensor | None) -> Tensor:
        """The first layer's input ``(T, B, C)`` for ``tokens (B, T)`` and ``positions (B or 1, T, C)``."""
        x = self.embed_scale * self.embed_tokens_only(tokens)
        if self.quant_noise is not None:
            x = self.quant_noise(x)
        if self.project_in_dim is not None:
            x = self.project_in_dim(x)
        if positions is not None:
            x = x + positions
        if self.layernorm_embedding is not None:
            x = self.layernorm_embedding(x)
        return self.dropout_module(x).transpose(0, 1)

    def embed_tokens_only(self, tokens: Tensor) -> Tensor:
        """The embeddings of ``tokens (B, T)`` without positions: ``(B, T, C)``."""
        return self.embed_tokens(tokens)

    def features_of(self, x: Tensor) -> Tensor:
        """The input ``(B, T, C)`` of the output layer, from the last layer's output ``(T, B, C)``."""
        if self.layer_norm is not None:
            x = self.layer_norm(x)
        x = x.transpose(0, 1)
        return x if self.project_out_dim is None else self.project_out_dim(x)

    def requested_weights(
        self, alignment_layer: int | None, alignment_heads: int | None, full_context_alignment: bool
    ) -> tuple[int, int | None]:
        """The layer whose cross-attention weights are returned, or ``NO_LAYER``, and of how many heads; None: all.

        Arguments as in ``extract_features``; where they are None, --alignment-layer and --alignment-heads hold.

        Raises:
            UsageError: for a full context, or without cross-attention.
        """
        if full_context_alignment:
            raise UsageError("full_context_alignment: this decoder is causal by construction; leave it out")
        if alignment_layer is not None:
            return alignment_layer, alignment_heads
        if not self.need_attn:
            return NO_LAYER, None
        if self.cfg.no_cross_attention:
            raise UsageError("--print-alignment: this model has no cross-attention; leave it out")
        layer = self.cfg.alignment_layer
        return self.num_layers - 1 if layer is None else layer, alignment_heads or self.cfg.alignment_heads


class SelfAttentionDecoder(CausalDecoder):
    """A decoder of :class:`.layers.SelfAttentionDecoderLayer`.

    Args:
        cfg: the nested config.
        dictionary: of the target.
        embed_tokens: its embedding.
        no_encoder_attn: build layers without cross-attention.
        build_self_attention: called with ``cfg`` for each layer; returns its self-attention.
        build_source_attention: the same for the cross-attention.
    """

    def __init__(
        self,
        cfg: Any,
        dictionary: Any,
        embed_tokens: nn.Embedding,
        no_encoder_attn: bool = False,
        *,
        build_self_attention: BuildAttention,
        build_source_attention: BuildAttention = softmax_cross_attention,
    ) -> None:
        self.build_self_attention = build_self_attention
        self.build_source_attention = build_source_attention
        super().__init__(cfg, dictionary, embed_tokens, no_encoder_attn)

    def build_decoder_layer(self, cfg: Any, no_encoder_attn: bool = False) -> nn.Module:
        attention = self.build_self_attention(cfg)
        source = None if no_encoder_attn else self.build_source_attention
        return wrap_layer(SelfAttentionDecoderLayer(cfg, attention, build_source_attention=source), cfg)

    def whole_sequence(
        self, prev_output_tokens: Tensor, encoder_out: EncoderOut | None, weights_layer: int
    ) -> WholeSequence:
        x, padding = self.embed_sequence(prev_output_tokens)
        source, source_padding = None, Padding()
        if encoder_out is not None:
            encoder_out = selected_rows(encoder_out)
            [source] = encoder_out["encoder_out"]
            source_padding = padding_from(encoder_out["encoder_padding_mask"])
        weights: Tensor | None = None
        inner_states: list[Tensor | None] = [x]
        for index, layer in enumerate(self.layers):
            x, layer_weights = layer(x, padding, source, source_padding, need_weights=index == weights_layer)
            inner_states.append(x)
            weights = weights if layer_weights is None else layer_weights
        return WholeSequence(self.features_of(x), weights, inner_states)

    def read_source(self, encoder_out: EncoderOut | None, *, weights_layer: int = NO_LAYER) -> DecoderSource:
        source, padding = None, Padding()
        if encoder_out is not None:
            [source] = encoder_out["encoder_out"]
            padding = padding_from(encoder_out["encoder_padding_mask"])
        layers = []
        for index, layer in enumerate(self.every_layer()):
            [cached] = layer(source, padding, need_weights=index == weights_layer, method="read_source")
            layers.append(cached)
        return DecoderSource(padding, Padding(), tuple(layers))
