"""Reformer's attention for encoders."""

import torch
from torch import Tensor

from ..ops.reformer_attention import reformer_attention
from ..usage_error import ArgumentError
from .dropout import Dropout, dropout_probability
from .heads import check_heads, merge_heads, split_heads
from .masks import check_mask
from .projection import Projections
from .redrawn_directions import RedrawnDirections

# 64 directions give 128 buckets, enough for 8,192 steps in chunks of 64. Hashing costs a quarter of attending then.
MOST_DIRECTIONS = 64


class ReformerAttention(RedrawnDirections):
    """Self-attention to the steps with the same hash (arXiv 2001.04451), O(T log T).

    A key is its query divided by the query's norm, and a score is q k: there is no projection of keys. All heads share
    the random directions of the hashes, which stay as they are in evaluation. The authors draw them again at every
    call.

    Args:
        embed_dim: channels of the sequence, C.
        num_heads: attention heads.
        num_hashes: rounds of hashing, each with directions of its own.
        chunk_size: steps of a chunk; each sees those of its bucket in its own chunk and the one before it.
        redraw_features: draw new directions after so many updates, in training; 0 = never.
        dropout: dropout probability of the weights.
        bias: projections have a bias.
        q_noise, qn_block_size: fairseq's quantisation noise on the projections.

    Raises:
        UsageError: if ``num_heads`` does not divide ``embed_dim``, or another number is too small.
    """

    def __init__(
        self,
        *,
        embed_dim: int,
        num_heads: int,
        num_hashes: int = 8,
        chunk_size: int = 64,
        redraw_features: int = 1000,
        dropout: float = 0.0,
        bias: bool = True,
        q_noise: float = 0.0,
        qn_block_size: int = 8,
    ) -> None:
        super().__init__()
        check_heads(num_heads, embed_dim)
        for name, value in (("num_hashes", num_hashes), ("chunk_size", chunk_size)):
            if value < 1:
                raise ArgumentError(name, value, "must be 1 or more")
        self.num_heads, self.head_size = num_heads, embed_dim // num_heads
        self.num_hashes, self.chunk_size = num_hashes, chunk_size
        self.dropout_module = Dropout(dropout, module_name=type(self).__name__)
        new = Projections(size=embed_dim, bias=bias, q_noise=q_noise, qn_block_size=qn_block_size)
        self.q_proj, self.v_proj, self.out_proj = new.input(), new.input(), new.output()
        self.register_directions(redraw_features)

    def draw(self, generator: torch.Generator) -> Tensor:
        """``(R, D, M)``."""
        shape = self.num_hashes, self.head_size, MOST_DIRECTIONS
        return torch.randn(shape, generator=generator, device=generator.device)

    def forward(self, x: Tensor, *, padding_mask: Tensor | None = None) -> Tensor:
        """Attend from each step of ``x`` to those with the same hash.

        Args:
            x: ``(T, B, C)``.
            padding_mask: ``(B, T)`` bool, True = padding, anywhere: neither seen nor counted.

        Returns:
            ``(T, B, C)``; at padding the bias of the output projection.
        """
        check_mask(padding_mask, x)
        y = reformer_attention(
            split_heads(self.q_proj(x), self.num_heads),
            split_heads(self.v_proj(x), self.num_heads),
            self.directions,
            chunk_size=self.chunk_size,
            padding_mask=padding_mask,
            dropout_p=dropout_probability(self.dropout_module),
        )
        return self.out_proj(merge_heads(y))
