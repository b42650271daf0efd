"""Block attention for encoders."""

from typing import Any

from torch import Tensor

from ..ops.block_partition import cut_by_number
from ..usage_error import ArgumentError
from .block_projections import BlockProjections, same_blocks
from .heads import mask_of
from .masks import check_mask


class BlockAttention(BlockProjections):
    """Bidirectional attention in two levels: about ``n^2 / m + m^2`` scores for n tokens in m blocks.

    Each sentence is cut by its own length: its output does not depend on the rest of the batch, except with random
    blocks.

    Args:
        num_blocks: blocks per sentence; 0 = the optimum ``(n^2 / 2)^(1/3)``. A shorter sentence has a block per token.
        random_blocks: random block sizes in training, drawn in each forward pass.
        options: those of :class:`.BlockProjections`.

    Raises:
        UsageError: if ``num_blocks`` is negative, or :class:`.BlockProjections` refuses an option.
    """

    def __init__(self, *, num_blocks: int = 0, random_blocks: bool = False, **options: Any) -> None:
        super().__init__(**options)
        if num_blocks < 0:
            raise ArgumentError("num_blocks", num_blocks, "must be 1 or more, or 0 for the optimum")
        self.num_blocks = num_blocks
        self.random_blocks = random_blocks

    def forward(self, x: Tensor, *, padding_mask: Tensor | None = None) -> Tensor:
        """Attend from each token to its block, and from its block to all blocks.

        Args:
            x: ``(T, B, C)``.
            padding_mask: ``(B, T)`` bool, True = padding, at any position: neither seen nor counted.

        Returns:
            ``(T, B, C)``; undefined, but finite, at padding.
        """
        check_mask(padding_mask, x)
        if self.convolution is not None:
            x = self.convolution.centred(x, padding_mask=padding_mask)
        if self.random_blocks and self.training:
            blocks = cut_by_number(mask_of(x, padding_mask), self.num_blocks, random=True, dtype=x.dtype)
        else:
            blocks = same_blocks(cut_by_number, self.num_blocks, x, padding_mask)
        return self.attend(x, blocks, causal=False)
