"""fairseq's dropout without fairseq, its current probability as a number for ops, and dropout of whole tokens."""

from collections.abc import Collection
from typing import Any

import torch.nn.functional as F
from torch import Tensor, nn


class Dropout(nn.Module):
    """Dropout with the interface of fairseq's, without fairseq.

    Args:
        p: the probability.
        module_name: its name for ``--retain-dropout-modules``.
    """

    def __init__(self, p: float, *, module_name: str) -> None:
        super().__init__()
        self.p = p
        self.module_name = module_name
        self.apply_during_inference = False

    def forward(self, x: Tensor) -> Tensor:
        """``x`` of any shape to the same."""
        p = dropout_probability(self)
        return F.dropout(x, p) if p else x

    def make_generation_fast_(
        self, *, retain_dropout: bool = False, retain_dropout_modules: Collection[str] | None = None, **_: Any
    ) -> None:
        """Called by fairseq-generate with its flags: evaluation keeps the dropout of all or of the named modules."""
        if retain_dropout and (retain_dropout_modules is None or self.module_name in retain_dropout_modules):
            self.apply_during_inference = True


def dropout_probability(module: Any) -> float:
    """``p`` of a :class:`Dropout` or of fairseq's, in training and in evaluation that keeps it; otherwise 0."""
    return module.p if module.training or module.apply_during_inference else 0.0


class WordDropout(Dropout):
    """Sets the embedding of a token to zero with probability ``p`` and scales the others by 1 / (1 - p)."""

    def __init__(self, p: float) -> None:
        super().__init__(p, module_name="WordDropout")

    def forward(self, embedding: Tensor) -> Tensor:
        """``(B, T, C)`` to the same."""
        if dropout_probability(self) == 0:
            return embedding
        return embedding * super().forward(embedding.new_ones(*embedding.shape[:2], 1))
