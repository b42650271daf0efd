"""Luna's encoder and decoder layer: each takes and returns a sequence x and a packed sequence p."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from fairseq.modules import LayerNorm
from torch import Tensor

from ...modules import LunaAttention, LunaCausalAttention
from ...modules.decoding_state import StateType
from ...ops.padding import Padding
from ..shared.attention_building import KERNEL, attention_options, construct_from_flags, softmax_cross_attention
from ..shared.generation import DecoderSource
from ..shared.layers import DecoderLayer, ResidualLayer

# Flags of the attentions, and the constructor arguments that they become.
SEGMENTS = {"luna_segment_bias": "segment_bias"}
CAUSAL = {"luna_activation": "activation", "luna_kernel": "kernel", **KERNEL}


def luna_attention(cfg: Any, side: Any, flags: Mapping[str, str]) -> LunaAttention:
    """The bidirectional attention of one side with these ``flags``."""
    options = {"num_packed_heads": side.projected_attention_heads, "tie_kv": not cfg.untie_luna_kv}
    return construct_from_flags(LunaAttention, cfg, flags, **options, **attention_options(cfg, side))


class LunaEncoderLayer(ResidualLayer):
    """Luna attention of x to itself through p, which also updates p; then the feed-forward network of x.

    Args:
        cfg: the nested config.
        packed_is_read: whether the updated p is read; if not, a post-norm layer has no norm for it.
    """

    def __init__(self, cfg: Any, *, packed_is_read: bool) -> None:
        super().__init__(cfg, cfg.encoder)
        self.self_attn = luna_attention(cfg, cfg.encoder, KERNEL)
        self.self_attn_layer_norm = LayerNorm(self.embed_dim, export=cfg.export)
        self.self_attn_packed_layer_norm = None
        if self.normalize_before or packed_is_read:
            self.self_attn_packed_layer_norm = LayerNorm(self.embed_dim, export=cfg.export)

    def forward(self, x: Tensor, packed: Tensor, padding: Padding, packed_padding: Padding) -> tuple[Tensor, Tensor]:
        """Apply the layer.

        Args:
            x: ``(T, B, C)``.
            packed: ``(L, B, C)``.
            padding: of x.
            packed_padding: of p.

        Returns:
            x and p of the same shapes.
        """
        residual, packed_residual = x, packed
        x = self.prenorm(x, self.self_attn_layer_norm)
        packed = self.prenorm(packed, self.self_attn_packed_layer_norm)
        x, packed_context, _ = self.self_attn(
            x, packed, x, context_padding_mask=padding, packed_padding_mask=packed_padding
        )
        x = self.add_and_norm(x, residual, self.self_attn_layer_norm)
        packed = self.add_and_norm(packed_context, packed_residual, self.self_attn_packed_layer_norm)
        return self.feed_forward(x), packed


class LunaDecoderLayer(DecoderLayer):
    """Causal Luna attention over x, Luna's or softmax cross-attention, then the feed-forward network.

    Args:
        cfg: the nested config.
        packed_is_read: whether the updated p is read; if not, a post-norm layer has no norm for it.
        no_encoder_attn: leave out the cross-attention; the causal attention still reads the packed sequence.
    """

    def __init__(self, cfg: Any, *, packed_is_read: bool, no_encoder_attn: bool) -> None:
        super().__init__(cfg)
        self.packed_is_read = packed_is_read
        self.cross_self_attention: bool = cfg.cross_self_attention
        self.self_attn = construct_from_flags(
            LunaCausalAttention, cfg, CAUSAL, tie_kv=not cfg.untie_luna_kv, **attention_options(cfg, cfg.decoder)
        )
        self.self_attn_layer_norm = LayerNorm(self.embed_dim, export=cfg.export)
        self.encoder_attn = None
        self.encoder_attn_packed_layer_norm = None
        if not no_encoder_attn:
            packs = cfg.luna_source_attention == "packed"
            self.encoder_attn = luna_attention(cfg, cfg.decoder, SEGMENTS) if packs else softmax_cross_attention(cfg)
            self.encoder_attn_layer_norm = LayerNorm(self.embed_dim, export=cfg.export)
            if packs and (self.normalize_before or packed_is_read):
                self.encoder_attn_packed_layer_norm = LayerNorm(self.embed_dim, export=cfg.export)

    def whole_sequence(
        self,
        x: Tensor,
        packed: Tensor,
        source: Tensor,
        *,
        padding: Padding,
        packed_padding: Padding,
        source_padding: Padding,
        need_weights: bool = False,
    ) -> tuple[Tensor, Tensor, Tensor | None]:
        """Apply the layer to all steps of a batch.

        Args:
            x: ``(T, B, C)``.
            packed: p, ``(L, B, C)``.
            source: the encoder's output, ``(S, B, C)``.
            padding: of x.
            packed_padding: of p.
            source_padding: of the source.
            need_weights: also return the cross-attention weights.

        Returns:
            x and p of the same shapes, and the weights ``(H, B, T, S)`` or None.
        """
        y, _ = self.self_attn(
            self.prenorm(x, self.self_attn_layer_norm),
            packed,
            padding_mask=padding,
            packed_padding_mask=packed_padding,
            memory=source if self.cross_self_attention else None,
            memory_padding_mask=source_padding if self.cross_self_attention else None,
        )
        x = self.add_and_norm(y, x, self.self_attn_layer_norm)
        if self.encoder_attn is None:
            return self.feed_forward(x), packed, None
        query = self.prenorm(x, self.encoder_attn_layer_norm)
        packed_context = None
        if isinstance(self.encoder_attn, LunaAttention):
            y, packed_context, weights = self.encoder_attn(
                query,
                self.prenorm(packed, self.encoder_attn_packed_layer_norm),
                source,
                context_padding_mask=source_padding,
                packed_padding_mask=packed_padding,
                need_weights=need_weights,
            )
        else:
            y, weights = self.encoder_attn(query, source, source_padding_mask=source_padding, need_weights=need_weights)
        x = self.add_and_norm(y, x, self.encoder_attn_layer_norm)
        packed = packed if packed_context is None else self.next_packed(packed_context, packed)
        return self.feed_forward(x), packed, weights

    def next_packed(self, packed_context: Tensor, packed: Tensor) -> Tensor:
        """The next layer's p, from the source packed into p and p itself; unspecified if none reads it."""
        if not self.packed_is_read:
            return packed_context
        return self.add_and_norm(packed_context, packed, self.encoder_attn_packed_layer_norm)

    def read_source(
        self, packed: Tensor, source: Tensor, source_padding: Padding, *, need_weights: bool
    ) -> tuple["LunaSource", Tensor]:
        """Cache p and the ``source (S, B, C)`` for all steps of generation; and return the next layer's p."""
        slots = self.self_attn.slot_queries(packed)
        if isinstance(self.encoder_attn, LunaAttention):
            p = self.prenorm(packed, self.encoder_attn_packed_layer_norm)
            cached, packed_context = self.encoder_attn.read_source(p, source, source_padding, need_weights=need_weights)
            return LunaSource(slots, cached), self.next_packed(packed_context, packed)
        if self.encoder_attn is None:
            return LunaSource(slots, None), packed
        cached = self.encoder_attn.read_source(source, source_padding, need_weights=need_weights)
        return LunaSource(slots, cached), packed

    def initial_state(self, cached: "LunaSource", source: Tensor, source_padding: Padding) -> tuple[Any]:
        """The state before the first step of generation, with one row for each sentence, in a tuple."""
        memory = source if self.cross_self_attention else None
        return (self.self_attn.initial_state(cached.slots, memory, source_padding),)

    def step(
        self,
        x: Tensor,
        padding: Padding,
        cached: "LunaSource",
        source: DecoderSource,
        state: Any,
        *,
        need_weights: bool,
    ) -> tuple[Tensor, Any, Tensor | None]:
        """Apply the layer to one step of generation.

        Arguments and results: :meth:`.SelfAttentionDecoderLayer.step`, but there is a state before the first step.
        """
        query = self.prenorm(x, self.self_attn_layer_norm)
        y, _, state = self.self_attn.step(query, padding, cached.slots, source.packed_padding, state)
        x = self.add_and_norm(y, x, self.self_attn_layer_norm)
        weights = None
        if self.encoder_attn is not None:
            packs = isinstance(self.encoder_attn, LunaAttention)
            padding_read = source.packed_padding if packs else source.padding
            x, weights = self.attend_to_cached_source(x, cached.source, padding_read, need_weights=need_weights)
        return self.feed_forward(x), state, weights

    @property
    def state_type(self) -> StateType:
        """The type of the layer's state, for :func:`.decoding_state.unflatten_state`."""
        return self.self_attn.state_type

    @property
    def cached_type(self) -> StateType:
        """The type of what :meth:`read_source` returns for the steps."""
        return LunaSource, {} if self.encoder_attn is None else {"source": self.encoder_attn.cached_type}


class LunaSource(NamedTuple):
    """The cache of a sentence that the steps of a layer read."""

    slots: Tensor  # (B, H, L, D), the queries of the packed slots
    source: Any  # what the cross-attention has read of the source; None without one
