"""A layer of the pyramid, and the stack of them that one cut is."""

from typing import Any

import torch
from fairseq.modules import LayerNorm
from torch import Tensor, nn

from ...modules.block_pyramid import WithinBlockAttention
from ...ops.block_pyramid import block_means, cut_to_shrink
from ...ops.dtypes import accumulation_dtype
from ..transformer.layers import ResidualLayer
from .config import depth


class PyramidLayer(ResidualLayer):
    """Attention inside blocks and the feed-forward network, then each block's mean in its place.

    A text that is one vector already stays one: it attends to itself.

    Args:
        cfg: the nested config.
        block_size: most steps in a block.
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
    """One cut: layers that shrink the text, to one vector or until they end, and the mean of what is left then.

    Args:
        cfg: the nested config.
        block_size: most steps in a block, in every layer.
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


def masked_mean(x: Tensor, padding_mask: Tensor) -> Tensor:
    """The mean of ``x (T, B, C)`` over steps that are not padding in ``padding_mask (B, T)``: ``(B, C)``."""
    real = ~padding_mask.t()[:, :, None]
    total = torch.where(real, x, 0).sum(0, dtype=accumulation_dtype(x))
    return (total / real.sum(0)).to(x.dtype)
