"""Luna's encoder and decoder layer: each takes and returns a sequence x and a packed sequence p."""

from collections.abc import Mapping
from typing import Any

from fairseq.modules import LayerNorm
from torch import Tensor

from ...modules import LunaAttention, LunaCausalAttention
from ...modules.generation_state import IncrementalState
from ..shared.attentions import KERNEL, attention_options, source_attention, with_flags
from ..shared.layers import DecoderLayer, ResidualLayer

# Flags of the attentions, and the constructor arguments that they become.
SEGMENTS = {"luna_segment_bias": "segment_bias"}
CAUSAL = {"luna_activation": "activation", "luna_kernel": "kernel", **KERNEL}


def luna_attention(cfg: Any, side: Any, flags: Mapping[str, str]) -> LunaAttention:
    """The bidirectional attention of one side with these ``flags``."""
    options = {"num_packed_heads": side.projected_attention_heads, "tie_kv": not cfg.untie_luna_kv}
    return with_flags(LunaAttention, cfg, flags, **options, **attention_options(cfg, side))


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

    def forward(
        self, x: Tensor, packed: Tensor, padding_mask: Tensor | None, packed_padding_mask: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """Apply the layer.

        Args:
            x: ``(T, B, C)``.
            packed: ``(L, B, C)``.
            padding_mask: ``(B, T)`` bool, True = padding.
            packed_padding_mask: ``(B, L)`` bool, True = padding.

        Returns:
            x and p of the same shapes.
        """
        residual, packed_residual = x, packed
        x = self.prenorm(x, self.self_attn_layer_norm)
        packed = self.prenorm(packed, self.self_attn_packed_layer_norm)
        x, packed_context, _ = self.self_attn(
            x, packed, x, context_padding_mask=padding_mask, packed_padding_mask=packed_padding_mask
        )
        x = self.add_and_norm(x, residual, self.self_attn_layer_norm)
        packed = self.add_and_norm(packed_context, packed_residual, self.self_attn_packed_layer_norm)
        return self.feed_forward(x), packed


class LunaDecoderLayer(DecoderLayer):
    """Causal Luna attention over x, Luna's or fairseq's attention to the source, then the feed-forward network.

    Args:
        cfg: the nested config.
        packed_is_read: whether the updated p is read; if not, a post-norm layer has no norm for it.
        no_encoder_attn: leave out the attention to the source; the causal attention still reads its packed sequence.
    """

    def __init__(self, cfg: Any, *, packed_is_read: bool, no_encoder_attn: bool) -> None:
        super().__init__(cfg)
        self.packed_is_read = packed_is_read
        self.cross_self_attention: bool = cfg.cross_self_attention
        self.self_attn = with_flags(
            LunaCausalAttention, cfg, CAUSAL, tie_kv=not cfg.untie_luna_kv, **attention_options(cfg, cfg.decoder)
        )
        self.self_attn_layer_norm = LayerNorm(self.embed_dim, export=cfg.export)
        self.encoder_attn = None
        self.encoder_attn_packed_layer_norm = None
        if not no_encoder_attn:
            packs = cfg.luna_source_attention == "packed"
            self.encoder_attn = luna_attention(cfg, cfg.decoder, SEGMENTS) if packs else source_attention(cfg)
            self.encoder_attn_layer_norm = LayerNorm(self.embed_dim, export=cfg.export)
            if packs and (self.normalize_before or packed_is_read):
                self.encoder_attn_packed_layer_norm = LayerNorm(self.embed_dim, export=cfg.export)

    def needs_packed(self, incremental_state: IncrementalState | None, *, need_weights: bool) -> bool:
        """Whether this step needs the packed sequence, because the generation state does not hold what is read of it.

        That is the first step, and the first one that returns the attention to the source.
        """
        if self.self_attn.load_state(incremental_state) is None:
            return True
        return (
            need_weights
            and isinstance(self.encoder_attn, LunaAttention)
            and not self.encoder_attn.keeps_pack_weights(incremental_state)
        )

    def forward(
        self,
        x: Tensor,
        packed: Tensor | None,
        encoder_out: Tensor,
        *,
        encoder_padding_mask: Tensor | None = None,
        packed_padding_mask: Tensor | None = None,
        padding_mask: Tensor | None = None,
        incremental_state: IncrementalState | None = None,
        need_weights: bool = False,
    ) -> tuple[Tensor, Tensor | None, Tensor | None]:
        """Apply the layer.

        Args:
            x: ``(T, B, C)``; in generation only the newest steps.
            packed: ``(L, B, C)``, or None in generation if the state holds all that is read of it.
            encoder_out: ``(S, B, C)``.
            encoder_padding_mask: ``(B, S)`` bool, True = padding.
            packed_padding_mask: ``(B, L)`` bool, True = padding.
            padding_mask: ``(B, T)`` bool, True = padding.
            incremental_state: fairseq's generation state.
            need_weights: also return the attention to the encoder's output.

        Returns:
            x and p of the same shapes, and the weights ``(H, B, T, S)`` or None.
        """
        residual = x
        x, _ = self.self_attn(
            self.prenorm(x, self.self_attn_layer_norm),
            packed,
            padding_mask=padding_mask,
            packed_padding_mask=packed_padding_mask,
            memory=encoder_out if self.cross_self_attention else None,
            memory_padding_mask=encoder_padding_mask if self.cross_self_attention else None,
            incremental_state=incremental_state,
        )
        x = self.add_and_norm(x, residual, self.self_attn_layer_norm)
        weights = None
        options: dict[str, Any] = {"incremental_state": incremental_state, "need_weights": need_weights}
        if isinstance(self.encoder_attn, LunaAttention):
            options |= {"context_padding_mask": encoder_padding_mask, "packed_padding_mask": packed_padding_mask}
            x, packed, weights = self.read_packed_source(self.encoder_attn, x, packed, encoder_out, **options)
        elif self.encoder_attn is not None:
            x, weights = self.attend_to_source(x, encoder_out, encoder_padding_mask=encoder_padding_mask, **options)
        return self.feed_forward(x), packed, weights

    def read_packed_source(
        self, attention: LunaAttention, x: Tensor, packed: Tensor | None, encoder_out: Tensor, **options: Any
    ) -> tuple[Tensor, Tensor | None, Tensor | None]:
        """The sub-layer that reads the source through p and writes p: results as in ``forward``.

        ``options`` are those of the ``attention``.
        """
        residual, packed_residual = x, packed
        if packed is not None:
            packed = self.prenorm(packed, self.encoder_attn_packed_layer_norm)
        x, packed, weights = attention(self.prenorm(x, self.encoder_attn_layer_norm), packed, encoder_out, **options)
        x = self.add_and_norm(x, residual, self.encoder_attn_layer_norm)
        if packed is not None and packed_residual is not None and self.packed_is_read:
            packed = self.add_and_norm(packed, packed_residual, self.encoder_attn_packed_layer_norm)
        return x, packed, weights
