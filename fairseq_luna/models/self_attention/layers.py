"""An encoder and a decoder layer around a self-attention that is given to them."""

from typing import Any

from fairseq.modules import LayerNorm, MultiheadAttention
from torch import Tensor, nn

from ...modules.generation_state import IncrementalState
from ..residual_layer import ResidualLayer
from ..source_attention import attend_to_source, source_attention


class SelfAttentionEncoderLayer(ResidualLayer):
    """Self-attention, then the feed-forward network.

    Args:
        cfg: the nested config.
        self_attn: called with ``x (T, B, C)`` and ``padding_mask (B, T)``, True = padding; gives ``(T, B, C)``.
    """

    # fairseq 0.12.2's encoder asks its layers so whether they take its fast path for softmax attention.
    load_to_BT = False

    def __init__(self, cfg: Any, self_attn: nn.Module) -> None:
        super().__init__(cfg, cfg.encoder)
        self.self_attn = self_attn
        self.self_attn_layer_norm = LayerNorm(self.embed_dim, export=cfg.export)

    def forward(self, x: Tensor, encoder_padding_mask: Tensor | None) -> Tensor:
        """``(T, B, C)`` to the same; ``encoder_padding_mask (B, T)`` bool, True = padding."""
        residual = x
        x = self.self_attn(self.before(x, self.self_attn_layer_norm), padding_mask=encoder_padding_mask)
        return self.feed_forward(self.after(x, residual, self.self_attn_layer_norm))

    def upgrade_state_dict_named(self, state_dict: dict[str, Tensor], name: str) -> None:
        """Nothing: fairseq's encoder asks its layers to, but there are no older names."""


class SelfAttentionDecoderLayer(ResidualLayer):
    """Causal self-attention, fairseq's attention to the encoder's output, then the feed-forward network.

    Args:
        cfg: the nested config.
        self_attn: called with ``x (T, B, C)``, ``padding_mask (B, T)`` and ``incremental_state``; gives
            ``(T, B, C)``.
        no_encoder_attn: leave out the attention to the encoder's output.
    """

    def __init__(self, cfg: Any, self_attn: nn.Module, *, no_encoder_attn: bool) -> None:
        super().__init__(cfg, cfg.decoder)
        self.self_attn = self_attn
        self.self_attn_layer_norm = LayerNorm(self.embed_dim, export=cfg.export)
        self.encoder_attn: MultiheadAttention | None = None
        if not no_encoder_attn:
            self.encoder_attn = source_attention(cfg)
            self.encoder_attn_layer_norm = LayerNorm(self.embed_dim, export=cfg.export)

    def forward(
        self,
        x: Tensor,
        encoder_out: Tensor | None = None,
        encoder_padding_mask: Tensor | None = None,
        incremental_state: IncrementalState | None = None,
        self_attn_mask: Tensor | None = None,
        self_attn_padding_mask: Tensor | None = None,
        need_attn: bool = False,
        need_head_weights: bool = False,
    ) -> tuple[Tensor, Tensor | None, None]:
        """One layer further; the arguments are those that fairseq's decoder gives to its layers.

        Args:
            x: ``(T, B, C)``; only the newest step in generation.
            encoder_out: ``(S, B, C)``.
            encoder_padding_mask: ``(B, S)`` bool, True = padding.
            incremental_state: fairseq's generation state.
            self_attn_mask: always None: the self-attention is causal by construction.
            self_attn_padding_mask: ``(B, T)`` bool, True = padding.
            need_attn: also return the attention to the encoder's output.
            need_head_weights: of each head, not averaged.

        Returns:
            ``(T, B, C)``; the weights ``(H, B, T, S)`` or None; None, where fairseq's layer exports its state.
        """
        assert self_attn_mask is None
        residual = x
        x = self.self_attn(
            self.before(x, self.self_attn_layer_norm),
            padding_mask=self_attn_padding_mask,
            incremental_state=incremental_state,
        )
        x = self.after(x, residual, self.self_attn_layer_norm)
        weights = None
        if self.encoder_attn is not None:
            x, weights = attend_to_source(
                self,
                self.encoder_attn,
                self.encoder_attn_layer_norm,
                x,
                encoder_out,
                encoder_padding_mask=encoder_padding_mask,
                incremental_state=incremental_state,
                need_weights=need_attn,
                need_head_weights=need_head_weights,
            )
        return self.feed_forward(x), weights, None
