"""Attention in two levels, among the tokens of a block and among blocks: what both forms have, and the encoder's."""

from typing import Any

import torch
from fairseq.modules.fairseq_dropout import FairseqDropout
from torch import Tensor, nn

from ..ops.block_attention import block_attention, unordered_block_attention
from ..ops.block_partition import Blocks, cut_by_number
from ..usage_error import UsageError
from .dropout import dropout_probability
from .heads import merge_heads, split_heads
from .projection import Projections
from .short_convolution import convolution_of

UNORDERED = ("none", "mean", "sum")


class TwoLevels(nn.Module):
    """The projections of both levels (``docs/design.md``, 3.5), and the attention over given blocks.

    Args:
        embed_dim: channels.
        num_heads: attention heads, the same in both levels.
        share_levels: the second level uses the first one's projections.
        unordered: "none"; or "mean" or "sum", which level one then is: of the values of a block.
        kernel_size: steps of a convolution before the projections, across the blocks, an odd number; 0: none.
        dropout: probability with which an attention weight is dropped.
        bias: projections have a bias.
        q_noise, qn_block_size: fairseq's quantisation noise on the projections.

    Raises:
        UsageError: if there is no such ``unordered``, or ``kernel_size`` is even or below 0.
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
        if unordered not in UNORDERED:
            raise UsageError(f"--unordered-blocks {unordered}: choose one of {', '.join(UNORDERED)}")
        self.num_heads = num_heads
        self.share_levels = share_levels
        self.unordered = unordered
        self.dropout_module = FairseqDropout(dropout, module_name=type(self).__name__)
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
        self.convolution = convolution_of(kernel_size, embed_dim=embed_dim, flag="--block-kernel-size")

    @property
    def is_ordered(self) -> bool:
        """Level one is an attention, not a mean or a sum."""
        return self.unordered == "none"

    @property
    def dropout_p(self) -> float:
        """Probability with which a weight is dropped now."""
        return dropout_probability(self.dropout_module)

    def attend(self, x: Tensor, blocks: Blocks, *, causal: bool) -> Tensor:
        """Both levels over ``x (T, B, C)``: ``(T, B, C)``."""
        if self.is_ordered:
            q, k, v = self.queries_keys_values(x)
            y, z = block_attention(q, k, v, self.project_summaries, blocks, causal=causal, dropout_p=self.dropout_p)
        else:
            y, z = unordered_block_attention(
                self.block_values(x),
                self.project_summaries,
                blocks,
                reduce=self.unordered,
                causal=causal,
                dropout_p=self.dropout_p,
            )
        return self.joined(y, z)

    def queries_keys_values(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Of level one, from ``x (T, B, C)``: each ``(B, H, T, D)``."""
        q, k, v = (split_heads(proj(x), self.num_heads) for proj in (self.q_proj, self.k_proj, self.v_proj))
        return q, k, v

    def block_values(self, x: Tensor) -> Tensor:
        """What an unordered block is the mean or sum of, from ``x (T, B, C)``: ``(B, H, T, D)``."""
        return split_heads(self.v_proj(x), self.num_heads)

    def project_summaries(self, summaries: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Queries, keys and values of level two, from ``(B, H, M, D)``: each ``(B, H, M, D)``."""
        x = merge_heads(summaries)
        if self.share_levels:
            return self.queries_keys_values(x)
        projections = (self.block_q_proj, self.block_k_proj, self.block_v_proj)
        q, k, v = (split_heads(proj(x), self.num_heads) for proj in projections)
        return q, k, v

    def joined(self, y: Tensor, z: Tensor) -> Tensor:
        """``out_proj([Y ; Z]) (T, B, C)`` of the two levels' ``(B, H, T, D)``."""
        return self.out_proj(torch.cat([merge_heads(y), merge_heads(z)], dim=-1))


class BlockAttention(TwoLevels):
    """Bidirectional attention in two levels: about ``n^2 / m + m^2`` scores for n tokens in m blocks.

    Each sentence is cut by its own length, and a sentence comes out the same whatever stands beside it, except
    that random blocks are random.

    Args:
        num_blocks: blocks of a sentence; 0 = the optimum ``(n^2 / 2)^(1/3)``. A shorter sentence has fewer: one for
            each of its tokens.
        random_blocks: in training, blocks have random sizes, drawn anew at every pass.
        options: those of :class:`TwoLevels`.

    Raises:
        UsageError: if ``num_blocks`` is negative, or :class:`TwoLevels` refuses an option.
    """

    def __init__(self, *, num_blocks: int = 0, random_blocks: bool = False, **options: Any) -> None:
        super().__init__(**options)
        if num_blocks < 0:
            raise UsageError(f"--num-blocks {num_blocks}: must be 1 or more, or 0 for the optimum")
        self.num_blocks = num_blocks
        self.random_blocks = random_blocks

    def forward(self, x: Tensor, *, padding_mask: Tensor | None = None) -> Tensor:
        """Attend from each token to its block, and from its block to all blocks.

        Args:
            x: ``(T, B, C)``.
            padding_mask: ``(B, T)`` bool, True = padding, anywhere: not seen and not counted.

        Returns:
            ``(T, B, C)``; without meaning, but finite, at padding.
        """
        if self.convolution is not None:
            x = self.convolution.centred(x, padding_mask=padding_mask)
        blocks = cut_by_number(mask_of(x, padding_mask), self.num_blocks, random=self.random_blocks and self.training)
        return self.attend(x, blocks, causal=False)


def mask_of(x: Tensor, padding_mask: Tensor | None) -> Tensor:
    """``padding_mask (B, T)``, or one without padding for ``x (T, B, C)``."""
    if padding_mask is not None:
        return padding_mask
    steps, batch = x.shape[:2]
    return x.new_zeros(batch, steps, dtype=torch.bool)
