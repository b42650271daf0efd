"""A decoder layer's softmax attention to the encoder's output: fairseq's, as this package's layers hold it."""

from typing import Any

from fairseq.modules import MultiheadAttention
from torch import Tensor, nn

from ..modules.generation_state import IncrementalState
from .residual_layer import ResidualLayer


def source_attention(cfg: Any) -> MultiheadAttention:
    """fairseq's module, by the flags of the nested ``cfg``."""
    return MultiheadAttention(
        cfg.decoder.embed_dim,
        cfg.decoder.attention_heads,
        kdim=cfg.encoder.embed_dim,
        vdim=cfg.encoder.embed_dim,
        dropout=cfg.attention_dropout,
        encoder_decoder_attention=True,
        q_noise=cfg.quant_noise.pq,
        qn_block_size=cfg.quant_noise.pq_block_size,
    )


def attend_to_source(
    layer: ResidualLayer,
    attention: MultiheadAttention,
    norm: nn.Module,
    x: Tensor,
    encoder_out: Tensor | None,
    *,
    encoder_padding_mask: Tensor | None,
    incremental_state: IncrementalState | None,
    need_weights: bool,
    need_head_weights: bool,
) -> tuple[Tensor, Tensor | None]:
    """The sub-layer of ``layer`` that reads the source ``(S, B, C)``, residual connection and norm included.

    Returns:
        ``(T, B, C)`` as ``x``, and the weights or None: ``(B, T, S)``, or ``(H, B, T, S)`` with ``need_head_weights``.
        In generation the source's keys and values are made at the first step and kept in ``incremental_state``.
    """
    context, weights = attention(
        query=layer.before(x, norm),
        key=encoder_out,
        value=encoder_out,
        key_padding_mask=encoder_padding_mask,
        incremental_state=incremental_state,
        static_kv=True,
        need_weights=need_weights,
        need_head_weights=need_head_weights,
    )
    return layer.after(context, x, norm), weights
