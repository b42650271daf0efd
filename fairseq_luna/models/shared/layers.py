"""Layers: the sub-layers that all have, and an encoder and a decoder layer around a given self-attention."""

from typing import Any

from fairseq import utils
from fairseq.distributed import fsdp_wrap
from fairseq.modules import FairseqDropout, LayerNorm
from fairseq.modules.checkpoint_activations import checkpoint_wrapper
from fairseq.modules.quant_noise import quant_noise
from torch import Tensor, nn

from ...modules.decoding_state import StateType
from ...modules.dropout import dropout_probability
from ...ops.dropout import add_dropped
from ...ops.padding import Padding
from .attention_building import BuildAttention
from .generation import DecoderSource


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
    """A layer of a decoder, without self-attention, that may have a cross-attention.

    A subclass has three methods, ``whole_sequence``, ``read_source`` and ``step``, and the types of what they return.
    A decoder calls them by :meth:`forward`, so that forward hooks and FSDP, which gathers the parameters of a layer
    when it is called, act in generation as well.

    Args:
        cfg: the nested config.
    """

    encoder_attn: Any  # a CrossAttention or a LunaAttention, or None
    encoder_attn_layer_norm: nn.Module

    def __init__(self, cfg: Any) -> None:
        super().__init__(cfg, cfg.decoder)

    def forward(self, *inputs: Any, method: str = "whole_sequence", **options: Any) -> Any:
        """Call a method of the layer."""
        return getattr(self, method)(*inputs, **options)

    def attend_to_cached_source(
        self, x: Tensor, cached: Any, padding: Padding, *, need_weights: bool
    ) -> tuple[Tensor, Tensor | None]:
        """The sub-layer of the cross-attention in a step of generation, with residual connection and norm.

        Args:
            x: ``(1, B, C)``.
            cached: what the cross-attention has read of the source.
            padding: of the source, or of the packed sequence in which it has been packed.
            need_weights: also return the weights.

        Returns:
            ``(1, B, C)``, and the weights ``(H, B, 1, S)`` or None.
        """
        assert self.encoder_attn is not None
        query = self.prenorm(x, self.encoder_attn_layer_norm)
        y, weights = self.encoder_attn.attend_to_source(query, cached, padding, need_weights=need_weights)
        return self.add_and_norm(y, x, self.encoder_attn_layer_norm), weights


class SelfAttentionEncoderLayer(ResidualLayer):
    """Self-attention, then the feed-forward network.

    Args:
        cfg: the nested config.
        self_attn: takes ``x (T, B, C)`` and ``padding_mask``, a :class:`.Padding`; returns ``(T, B, C)``.
    """

    def __init__(self, cfg: Any, self_attn: nn.Module) -> None:
        super().__init__(cfg, cfg.encoder)
        self.self_attn = self_attn
        self.self_attn_layer_norm = LayerNorm(self.embed_dim, export=cfg.export)

    def forward(self, x: Tensor, padding: Padding) -> Tensor:
        """``(T, B, C)`` with its ``padding`` to the same."""
        residual = x
        x = self.self_attn(self.prenorm(x, self.self_attn_layer_norm), padding_mask=padding)
        return self.feed_forward(self.add_and_norm(x, residual, self.self_attn_layer_norm))

    def upgrade_state_dict_named(self, state_dict: dict[str, Tensor], name: str) -> None:
        """Called by fairseq's encoder; there are no older parameter names."""


class SelfAttentionDecoderLayer(DecoderLayer):
    """Causal self-attention, cross-attention, then the feed-forward network.

    Args:
        cfg: the nested config.
        self_attn: a :class:`~fairseq_luna.modules.attention.SelfAttention` that is causal.
        build_source_attention: called with ``cfg``; returns the cross-attention, a
            :class:`~fairseq_luna.modules.attention.CrossAttention`. None: there is none.
    """

    def __init__(self, cfg: Any, self_attn: nn.Module, *, build_source_attention: BuildAttention | None) -> None:
        super().__init__(cfg)
        self.self_attn: Any = self_attn
        self.self_attn_layer_norm = LayerNorm(self.embed_dim, export=cfg.export)
        self.encoder_attn = None
        if build_source_attention is not None:
            self.encoder_attn = build_source_attention(cfg)
            self.encoder_attn_layer_norm = LayerNorm(self.embed_dim, export=cfg.export)

    def whole_sequence(
        self, x: Tensor, padding: Padding, source: Tensor | None, source_padding: Padding, *, need_weights: bool = False
    ) -> tuple[Tensor, Tensor | None]:
        """Apply the layer to all steps of a batch.

        Args:
            x: ``(T, B, C)``.
            padding: of x.
            source: the encoder's output, ``(S, B, C)``; None if there is no cross-attention.
            source_padding: of the source.
            need_weights: also return the cross-attention weights.

        Returns:
            ``(T, B, C)``, and the weights ``(H, B, T, S)`` or None.
        """
        y = self.self_attn(self.prenorm(x, self.self_attn_layer_norm), padding_mask=padding)
        x = self.add_and_norm(y, x, self.self_attn_layer_norm)
        weights = None
        if self.encoder_attn is not None:
            query = self.prenorm(x, self.encoder_attn_layer_norm)
            y, weights = self.encoder_attn(query, source, source_padding_mask=source_padding, need_weights=need_weights)
            x = self.add_and_norm(y, x, self.encoder_attn_layer_norm)
        return self.feed_forward(x), weights

    def read_source(self, source: Tensor | None, padding: Padding, *, need_weights: bool) -> tuple[Any]:
        """Cache the ``source (S, B, C)`` for all steps of generation; None without cross-attention.

        In a tuple, because fairseq's activation checkpointing takes a NamedTuple for several results.
        """
        if self.encoder_attn is None:
            return (None,)
        assert source is not None, "the cross-attention needs the encoder's output"
        return (self.encoder_attn.read_source(source, padding, need_weights=need_weights),)

    def step(
        self, x: Tensor, padding: Padding, cached: Any, source: DecoderSource, state: Any, *, need_weights: bool
    ) -> tuple[Tensor, Any, Tensor | None]:
        """Apply the layer to one step of generation.

        Args:
            x: ``(1, B, C)``.
            padding: of the step.
            cached: the result of :meth:`read_source`.
            source: which ``cached`` is a part of, with the padding of the source.
            state: after the step before; None: there is none.
            need_weights: also return the cross-attention weights.

        Returns:
            ``(1, B, C)``, the state after the step, and the weights ``(H, B, 1, S)`` or None.
        """
        y, state = self.self_attn.step(self.prenorm(x, self.self_attn_layer_norm), padding, state)
        x = self.add_and_norm(y, x, self.self_attn_layer_norm)
        weights = None
        if self.encoder_attn is not None:
            x, weights = self.attend_to_cached_source(x, cached, source.padding, need_weights=need_weights)
        return self.feed_forward(x), state, weights

    @property
    def state_type(self) -> StateType:
        """The type of the layer's state, for :func:`.decoding_state.unflatten_state`."""
        return self.self_attn.state_type

    @property
    def cached_type(self) -> StateType:
        """The type of :meth:`read_source`'s result; None without cross-attention."""
        return None if self.encoder_attn is None else self.encoder_attn.cached_type


def wrap_layer(layer: nn.Module, cfg: Any) -> nn.Module:
    """Wrap a layer for activation checkpointing and FSDP as ``cfg`` says; a checkpointed layer is its own FSDP unit."""
    if cfg.checkpoint_activations:
        layer = checkpoint_wrapper(layer, offload_to_cpu=cfg.offload_activations)
    return fsdp_wrap(layer, min_num_params=0 if cfg.checkpoint_activations else cfg.min_params_to_wrap)
