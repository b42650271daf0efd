"""The column of ones that counts the weights, and the denominators."""

import torch
from torch import Tensor

from ..dropout import drop_steps

NORMALISERS = ("sum", "bounded", "each feature")
# A mean below it has no real step, or none with a weight; the gradient of a quotient by it could overflow.
LEAST_MEAN = 1e-30


def with_ones(v: Tensor, dtype: torch.dtype, dropout_p: float) -> Tensor:
    """``v (B, H, T, E)`` and a column of ones, ``(B, H, T, E + 1)``: dropout drops steps of v, not of the ones."""
    return torch.cat([drop_steps(v, dropout_p).to(dtype), v.new_ones(*v.shape[:-1], 1, dtype=dtype)], dim=-1)


def denominator(mean: Tensor, steps: Tensor, normaliser: str, *, causal: bool) -> Tensor:
    """What divides a mean of weighted values.

    Args:
        mean: the mean of the weights, or of each feature of the keys.
        steps: over how many steps, at least 1; broadcastable to ``mean``.
        normaliser: as in :mod:`.naive`.
        causal: with "bounded", the bound is of the sum itself, not of its size.

    Returns:
        the shape of ``mean``.

    Raises:
        ValueError: if the normaliser is unknown.
    """
    if normaliser not in NORMALISERS:
        raise ValueError(f"normaliser {normaliser}: choose one of {', '.join(NORMALISERS)}")
    if normaliser == "bounded":
        return torch.maximum(mean if causal else mean.abs(), steps.reciprocal())  # of the sum: at least 1
    return mean.masked_fill(mean < LEAST_MEAN, 1)
