"""Fastformer's bidirectional attention: the encoder's self-attention."""

from torch import Tensor

from ..ops.fastformer_attention import fastformer_attention
from .fastformer_projections import FastformerProjections


class FastformerAttention(FastformerProjections):
    """Additive self-attention over a whole sentence, linear in its length (arXiv 2108.09084, section 3.2).

    ``docs/fastformer.md`` has the equations; :class:`.FastformerProjections` the arguments. Where a sentence is
    nothing but padding, its global query and global key are zero.
    """

    def forward(self, x: Tensor, *, padding_mask: Tensor | None = None) -> Tensor:
        """Let each step of ``x`` meet the pooled queries and keys of all steps.

        Args:
            x: ``(T, B, C)``.
            padding_mask: ``(B, T)`` bool, True = padding: the step is not seen.

        Returns:
            ``(T, B, C)``.
        """
        if self.convolution is not None:
            x = self.convolution.centred(x, padding_mask=padding_mask)
        q, k, v = self.queries_keys_values(x)
        u, global_query = fastformer_attention(
            q, k, v, self.maps(), padding_mask=padding_mask, dropout=self.dropout_module
        )
        return self.output(u, q, global_query)
