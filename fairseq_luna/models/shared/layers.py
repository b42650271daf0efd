"""Layers: the sub-layers that all have, and an encoder and a decoder layer around a given self-attention."""

from typing import Any

from fairseq import utils
from fairseq.distributed import fsdp_wrap
from fairseq.modules import FairseqDropout, LayerNorm
from fairseq.modules.checkpoint_activations import checkpoint_wrapper
from fairseq.modules.quant_noise import quant_noise
from torch import Tensor, nn

from ...modules.dropout import dropout_probability
from ...modules.generation_state import IncrementalState
from ...ops.dropout import add_dropped
from .attentions import BuildAttention


class ResidualLayer(nn.Module):
    """A layer without attention: residual connections, their norms, and a feed-forward network.

    fairseq's own layer is not the base class: in fairseq 0.12.2 the encoder layer holds a second, untrained copy of its
    weights for a fast path that only softmax attention can take.

    Args:
        cfg: fairseq's nested transformer config.
        side: its encoder or decoder part.
    """

    def __init__(self, cfg: Any, side: Any) -> None:
        super().__init__()
        self.embed_dim: int = side.embed_dim
        self.normalize_before: bool = side.normalize_before
        self.dropout_module = FairseqDropout(cfg.dropout, module_name=type(self).__name__)
        self.activation_fn = utils.get_activation_fn(activation=cfg.activation_fn)
        activation_dropout = float(cfg.activation_dropout or cfg.relu_dropout or 0)
        self.activation_dropout_module = FairseqDropout(activation_dropout, module_name=type(self).__name__)
        noise = {"p": cfg.quant_noise.pq, "block_size": cfg.quant_noise.pq_block_size}
        self.fc1 = quant_noise(nn.Linear(self.embed_dim, side.ffn_embed_dim), **noise)
        self.fc2 = quant_noise(nn.Linear(side.ffn_embed_dim, self.embed_dim), **noise)
        self.final_layer_norm = LayerNorm(self.embed_dim, export=cfg.export)

    def prenorm(self, x: Tensor, norm: nn.Module | None) -> Tensor:
        """The input of a sub-layer: ``norm(x)`` in a pre-norm layer with a ``norm``, otherwise ``x``."""
        return norm(x) if self.normalize_before and norm is not None else x

    def add_and_norm(self, x: Tensor, residual: Tensor, norm: nn.Module | None) -> Tensor:
        """Dropout of ``x``, residual connection and, in a post-norm layer with a ``norm``, the norm."""
        x = add_dropped(residual, x, dropout_probability(self.dropout_module))
        return x if self.normalize_before or norm is None else norm(x)

    def feed_forward(self, x: Tensor) -> Tensor:
        """The feed-forward sub-layer, with residual connection and norm: ``(..., C)`` to the same."""
        residual = x
        x = self.activation_fn(self.fc1(self.prenorm(x, self.final_layer_norm)))
        x = self.fc2(self.activation_dropout_module(x))
        return self.add_and_norm(x, residual, self.final_layer_norm)


class DecoderLayer(ResidualLayer):
    """A layer of a decoder, without self-attention, that may have an attention to the source.

    Args:
        cfg: the nested config.
    """

    encoder_attn: nn.Module | None
    encoder_attn_layer_norm: nn.Module

    def __init__(self, cfg: Any) -> None:
        super().__init__(cfg, cfg.decoder)

    def attend_to_source(
        self,
        x: Tensor,
        encoder_out: Tensor | None,
        *,
        encoder_padding_mask: Tensor | None,
        incremental_state: IncrementalState | None,
        need_weights: bool,
    ) -> tuple[Tensor, Tensor | None]:
        """The sub-layer that reads the source ``(S, B, C)``, with residual connection and norm.

        In generation what is read of the source is computed at the first step and kept in ``incremental_state``.

        Returns:
            ``(T, B, C)``, the shape of ``x``, and the weights ``(H, B, T, S)`` or None.
        """
        assert self.encoder_attn is not None
        context, weights = self.encoder_attn(
            self.prenorm(x, self.encoder_attn_layer_norm),
            encoder_out,
            source_padding_mask=encoder_padding_mask,
            incremental_state=incremental_state,
            need_weights=need_weights,
        )
        return self.add_and_norm(context, x, self.encoder_attn_layer_norm), weights


class SelfAttentionEncoderLayer(ResidualLayer):
    """Self-attention, then the feed-forward network.

    Args:
        cfg: the nested config.
        self_attn: takes ``x (T, B, C)`` and ``padding_mask (B, T)``, True = padding; returns ``(T, B, C)``.
    """

    def __init__(self, cfg: Any, self_attn: nn.Module) -> None:
        super().__init__(cfg, cfg.encoder)
        self.self_attn = self_attn
        self.self_attn_layer_norm = LayerNorm(self.embed_dim, export=cfg.export)

    def forward(self, x: Tensor, encoder_padding_mask: Tensor | None) -> Tensor:
        """``(T, B, C)`` to the same; ``encoder_padding_mask (B, T)`` bool, True = padding."""
        residual = x
        x = self.self_attn(self.prenorm(x, self.self_attn_layer_norm), padding_mask=encoder_padding_mask)
        return self.feed_forward(self.add_and_norm(x, residual, self.self_attn_layer_norm))

    def upgrade_state_dict_named(self, state_dict: dict[str, Tensor], name: str) -> None:
        """Called by fairseq's encoder; there are no older parameter names."""


class SelfAttentionDecoderLayer(DecoderLayer):
    """Causal self-attention, attention to the encoder's output, then the feed-forward network.

    Args:
        cfg: the nested config.
        self_attn: takes ``x (T, B, C)``, ``padding_mask (B, T)`` and ``incremental_state``; returns ``(T, B, C)``.
        build_source_attention: called with ``cfg``; returns the attention to the encoder's output, which is called as
            :class:`~fairseq_luna.modules.SoftmaxSourceAttention` is. None: there is none.
    """

    def __init__(self, cfg: Any, self_attn: nn.Module, *, build_source_attention: BuildAttention | None) -> None:
        super().__init__(cfg)
        self.self_attn = self_attn
        self.self_attn_layer_norm = LayerNorm(self.embed_dim, export=cfg.export)
        self.encoder_attn = None
        if build_source_attention is not None:
            self.encoder_attn = build_source_attention(cfg)
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
        """Apply the layer; the arguments are those that fairseq's decoder passes.

        Args:
            x: ``(T, B, C)``; in generation only the newest steps.
            encoder_out: ``(S, B, C)``.
            encoder_padding_mask: ``(B, S)`` bool, True = padding.
            incremental_state: fairseq's generation state.
            self_attn_mask: always None: the self-attention is causal by construction.
            self_attn_padding_mask: ``(B, T)`` bool, True = padding.
            need_attn, need_head_weights: also return the attention to the encoder's output, of each head.

        Returns:
            ``(T, B, C)``; the weights ``(H, B, T, S)`` or None; None, where fairseq's layer exports its state.
        """
        assert self_attn_mask is None
        residual = x
        x = self.self_attn(
            self.prenorm(x, self.self_attn_layer_norm),
            padding_mask=self_attn_padding_mask,
            incremental_state=incremental_state,
        )
        x = self.add_and_norm(x, residual, self.self_attn_layer_norm)
        weights = None
        if self.encoder_attn is not None:
            x, weights = self.attend_to_source(
                x,
                encoder_out,
                encoder_padding_mask=encoder_padding_mask,
                incremental_state=incremental_state,
                need_weights=need_attn or need_head_weights,
            )
        return self.feed_forward(x), weights, None


def wrap_layer(layer: nn.Module, cfg: Any) -> nn.Module:
    """Wrap a layer for activation checkpointing and FSDP as ``cfg`` says; a checkpointed layer is its own FSDP unit."""
    if cfg.checkpoint_activations:
        layer = checkpoint_wrapper(layer, offload_to_cpu=cfg.offload_activations)
    return fsdp_wrap(layer, min_num_params=0 if cfg.checkpoint_activations else cfg.min_params_to_wrap)
