"""The pyramid's encoder: embeddings and parallel branches, whose layers shorten the text."""

import math
from typing import Any

import torch
from fairseq.models import FairseqEncoder
from fairseq.modules import FairseqDropout, LayerNorm, PositionalEmbedding
from torch import Tensor, nn

from ...modules.block_attention import WithinBlockAttention
from ...ops.block_partition import block_means, cut_to_shrink
from ...ops.masked_softmax import masked_mean
from ..shared.layers import ResidualLayer
from .config import depth


class PyramidLayer(ResidualLayer):
    """Attention inside blocks and the feed-forward network; then each block is replaced by its mean.

    A text that is already one vector stays one and attends to itself.

    Args:
        cfg: the nested config.
        block_size: maximum number of steps in a block.
    """

    def __init__(self, cfg: Any, *, block_size: int) -> None:
        super().__init__(cfg, cfg.encoder)
        self.block_size = block_size
        self.self_attn = WithinBlockAttention(
            embed_dim=self.embed_dim, num_heads=cfg.encoder.attention_heads, dropout=cfg.attention_dropout
        )
        self.self_attn_layer_norm = LayerNorm(self.embed_dim, export=cfg.export)

    def forward(self, x: Tensor, padding_mask: Tensor) -> tuple[Tensor, Tensor]:
        """``x (T, B, C)`` and ``padding_mask (B, T)``, True = padding, to ``(M, B, C)`` and ``(B, M)``.

        M is T over the block size, rounded up.
        """
        blocks = cut_to_shrink(padding_mask, self.block_size)
        residual = x
        x = self.self_attn(self.prenorm(x, self.self_attn_layer_norm), blocks=blocks)
        x = self.feed_forward(self.add_and_norm(x, residual, self.self_attn_layer_norm))
        return block_means(x, blocks)


class PyramidBranch(nn.Module):
    """Layers that shorten a text, and the mean of the vectors that remain after the last.

    Args:
        cfg: the nested config.
        block_size: maximum number of steps in a block, in every layer.
    """

    def __init__(self, cfg: Any, *, block_size: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList(PyramidLayer(cfg, block_size=block_size) for _ in range(depth(block_size, cfg)))
        size = cfg.encoder.embed_dim
        self.layer_norm = LayerNorm(size, export=cfg.export) if cfg.encoder.normalize_before else None

    def forward(self, x: Tensor, padding_mask: Tensor) -> Tensor:
        """``x (T, B, C)`` and ``padding_mask (B, T)``, True = padding, to ``(B, C)``."""
        for layer in self.layers:
            x, padding_mask = layer(x, padding_mask)
        if self.layer_norm is not None:
            x = self.layer_norm(x)
        return masked_mean(x, padding_mask)


class PyramidEncoder(FairseqEncoder):
    """Embeds a text and reduces it to one vector per branch.

    Args:
        cfg: the nested config.
        dictionary: of the text.
    """

    def __init__(self, cfg: Any, dictionary: Any) -> None:
        super().__init__(dictionary)
        size = cfg.encoder.embed_dim
        self.padding_idx: int = dictionary.pad()
        self.max_source_positions: int = cfg.max_source_positions
        self.embed_scale = math.sqrt(size)
        self.embed_tokens = nn.Embedding(len(dictionary), size, self.padding_idx)
        nn.init.normal_(self.embed_tokens.weight, std=size**-0.5)
        nn.init.zeros_(self.embed_tokens.weight[self.padding_idx])
        self.embed_positions = None
        if not cfg.no_token_positional_embeddings:
            self.embed_positions = PositionalEmbedding(
                cfg.max_source_positions, size, self.padding_idx, learned=cfg.encoder.learned_pos
            )
        self.dropout_module = FairseqDropout(cfg.dropout, module_name=type(self).__name__)
        self.branches = nn.ModuleList(PyramidBranch(cfg, block_size=each) for each in cfg.pyramid_block_sizes)
        self.output_size = size * len(self.branches)

    def forward(self, src_tokens: Tensor, src_lengths: Tensor | None = None) -> Tensor:
        """Features of each text.

        Args:
            src_tokens: ``(B, T)`` int64, padded anywhere.
            src_lengths: passed by fairseq and not used; lengths follow from the padding.

        Returns:
            ``(B, output_size)``: the results of the branches, concatenated.
        """
        x = self.embed_scale * self.embed_tokens(src_tokens)
        if self.embed_positions is not None:
            x = x + self.embed_positions(src_tokens)
        x = self.dropout_module(x).transpose(0, 1)
        padding_mask = src_tokens.eq(self.padding_idx)
        return torch.cat([branch(x, padding_mask) for branch in self.branches], dim=-1)

    def max_positions(self) -> int:
        return self.max_source_positions
