"""Dropping whole words at the input."""

from fairseq.modules import FairseqDropout
from torch import Tensor


class WordDropout(FairseqDropout):
    """Zero the embedding of a word with probability ``p``, and scale the others by 1 / (1 - p)."""

    def __init__(self, p: float) -> None:
        super().__init__(p, module_name="WordDropout")

    def forward(self, embedding: Tensor) -> Tensor:
        """``(B, T, C)`` to the same."""
        if self.p == 0 or not (self.training or self.apply_during_inference):
            return embedding
        return embedding * super().forward(embedding.new_ones(*embedding.shape[:2], 1))
