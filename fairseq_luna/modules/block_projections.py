"""Projections of two-level attention, for the encoder and the decoder."""

from collections.abc import Callable
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..ops.block_attention import block_attention, read_blocks, unordered_block_attention
from ..ops.block_partition import Blocks
from ..ops.once_per_batch import once_per_batch
from .choices import check_choice
from .dropout import Dropout, dropout_probability
from .heads import check_heads, merge_heads, split_heads
from .projection import Projections, affine_of, project_together
from .short_convolution import convolution_of

UNORDERED = ("none", "mean", "sum")


class Halves(NamedTuple):
    """The weights of ``out_proj`` for the two levels, and its bias."""

    of_y: Tensor  # (C, C)
    of_z: Tensor  # (C, C)
    bias: Tensor | None


class BlockProjections(nn.Module):
    """The projections of both levels (``docs/mathematics.md``), and the attention over given blocks.

    Args:
        embed_dim: channels.
        num_heads: attention heads, the same in both levels.
        share_levels: the second level uses the projections of the first.
        unordered: "none"; or "mean" or "sum": the first level is the mean or sum of the values of a block.
        kernel_size: kernel size of a convolution over the whole sequence before the projections, odd; 0 = none.
        dropout: dropout probability of the attention weights.
        bias: projections have a bias.
        q_noise, qn_block_size: fairseq's quantisation noise on the projections.

    Raises:
        UsageError: if ``unordered`` is unknown, ``num_heads`` does not divide ``embed_dim``, or ``kernel_size`` is even
            or negative.
    """

    def __init__(
        self,
        *,
        embed_dim: int,
        num_heads: int,
        share_levels: bool = False,
        unordered: str = "none",
        kernel_size: int = 0,
        dropout: float = 0.0,
        bias: bool = True,
        q_noise: float = 0.0,
        qn_block_size: int = 8,
    ) -> None:
        super().__init__()
        check_choice("unordered", unordered, UNORDERED)
        check_heads(num_heads, embed_dim)
        self.num_heads = num_heads
        self.share_levels = share_levels
        self.unordered = unordered
        self.dropout_module = Dropout(dropout, module_name=type(self).__name__)
        new = Projections(size=embed_dim, bias=bias, q_noise=q_noise, qn_block_size=qn_block_size)
        if self.is_ordered or share_levels:
            self.q_proj = new.input()
            self.k_proj = new.input()
        self.v_proj = new.input()
        if not share_levels:
            self.block_q_proj = new.input()
            self.block_k_proj = new.input()
            self.block_v_proj = new.input()
        self.out_proj = new.output(inputs=2)
        self.convolution = convolution_of(kernel_size, embed_dim=embed_dim)

    @property
    def is_ordered(self) -> bool:
        """The first level is an attention, not a mean or sum."""
        return self.unordered == "none"

    def attend(self, x: Tensor, blocks: Blocks, *, causal: bool) -> Tensor:
        """Both levels over ``x (T, B, C)``: ``(T, B, C)``."""
        dropout_p = dropout_probability(self.dropout_module)
        if self.is_ordered:
            q, k, v = self.queries_keys_values(x)
            y, z = block_attention(q, k, v, self.project_summaries, blocks, causal=causal, dropout_p=dropout_p)
        else:
            y, z = unordered_block_attention(
                self.block_values(x),
                self.project_summaries,
                blocks,
                reduce=self.unordered,
                causal=causal,
                dropout_p=dropout_p,
            )
        return self.output(y, z, blocks, causal=causal)

    def queries_keys_values(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The first level's projections of ``x (T, B, C)``, each ``(B, H, T, D)``."""
        return self.split(x, self.q_proj, self.k_proj, self.v_proj)

    def block_values(self, x: Tensor) -> Tensor:
        """The values that an unordered block is the mean or sum of, from ``x (T, B, C)``: ``(B, H, T, D)``."""
        return split_heads(self.v_proj(x), self.num_heads)

    def project_summaries(self, summaries: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The second level's projections of ``(B, H, M, D)``, each of the same shape."""
        x = merge_heads(summaries)
        if self.share_levels:
            return self.queries_keys_values(x)
        return self.split(x, self.block_q_proj, self.block_k_proj, self.block_v_proj)

    def split(self, x: Tensor, *projections: nn.Module) -> tuple[Tensor, Tensor, Tensor]:
        """Three projections of ``x (T, B, C)``, each ``(B, H, T, D)``."""
        q, k, v = (split_heads(projected, self.num_heads) for projected in project_together(x, *projections))
        return q, k, v

    def output(self, y: Tensor, z: Tensor, blocks: Blocks, *, causal: bool) -> Tensor:
        """``out_proj([Y ; Z]) (T, B, C)`` from Y ``(B, H, T, D)`` and the result of level two ``(B, H, M, D)``."""
        y, z = merge_heads(y), z.transpose(1, 2).flatten(2)
        halves = self.output_halves()
        if halves is None:
            return self.out_proj(torch.cat([y, read_blocks(z, blocks, causal=causal)], dim=-1))
        return F.linear(y, halves.of_y, halves.bias) + read_blocks(F.linear(z, halves.of_z), blocks, causal=causal)

    def output_halves(self) -> Halves | None:
        """``out_proj`` in two, so that Z's part is computed once for a block; None if it is not a plain linear map."""
        affine = affine_of(self.out_proj)
        if affine is None:
            return None
        of_y, of_z = affine.weight.chunk(2, dim=1)
        return Halves(of_y, of_z, affine.bias)


def same_blocks(cut: Callable[..., Blocks], number: int, x: Tensor, padding_mask: Tensor | None) -> Blocks:
    """``cut(padding_mask, number)`` for ``x (T, B, C)``, the same object for all layers that get the same mask."""
    return _blocks(cut, number, padding_mask, x.shape[:2], x.device, x.dtype)


@once_per_batch
def _blocks(
    cut: Callable[..., Blocks],
    number: int,
    padding_mask: Tensor | None,
    size: tuple[int, int],
    device: torch.device,
    dtype: torch.dtype,
) -> Blocks:
    steps, batch = size
    if padding_mask is None:
        padding_mask = torch.zeros(batch, steps, dtype=torch.bool, device=device)
    return cut(padding_mask, number, dtype=dtype)
