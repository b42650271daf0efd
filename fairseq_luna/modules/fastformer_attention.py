"""Fastformer's bidirectional attention for encoders."""

from torch import Tensor

from ..ops.fastformer_attention import fastformer_attention
from .dropout import dropout_probability
from .fastformer_projections import FastformerProjections
from .masks import check_mask


class FastformerAttention(FastformerProjections):
    """Additive self-attention, linear in the length (arXiv 2108.09084, section 3.2; ``docs/mathematics.md``).

    Arguments are those of :class:`.FastformerProjections`. If a sentence is all padding, its global query and global
    key are zero.
    """

    def forward(self, x: Tensor, *, padding_mask: Tensor | None = None) -> Tensor:
        """Combine each step of ``x`` with the pooled queries and keys of all steps.

        Args:
            x: ``(T, B, C)``.
            padding_mask: ``(B, T)`` bool, True = padding: the step is not seen.

        Returns:
            ``(T, B, C)``.
        """
        check_mask(padding_mask, x)
        if self.convolution is not None:
            x = self.convolution.centred(x, padding_mask=padding_mask)
        q, k, v = self.queries_keys_values(x)
        dropout_p = dropout_probability(self.dropout_module)
        u, global_query = fastformer_attention(q, k, v, self.maps(), padding_mask=padding_mask, dropout_p=dropout_p)
        return self.output(u, q, global_query)
