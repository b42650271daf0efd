"""Dropout of whole words at the input."""

from torch import Tensor

from .dropout import Dropout, dropout_probability


class WordDropout(Dropout):
    """Sets the embedding of a word to zero with probability ``p`` and scales the others by 1 / (1 - p)."""

    def __init__(self, p: float) -> None:
        super().__init__(p, module_name="WordDropout")

    def forward(self, embedding: Tensor) -> Tensor:
        """``(B, T, C)`` to the same."""
        if dropout_probability(self) == 0:
            return embedding
        return embedding * super().forward(embedding.new_ones(*embedding.shape[:2], 1))
