"""The denominator before the first real step."""

from torch import Tensor


def nonzero(denominator: Tensor) -> Tensor:
    """``denominator`` with 1 instead of 0, its value before the first real step; later it is at least 1.

    Not ``clamp(min=1)``, which has no gradient at 1 itself from torch 2.15 on.
    """
    return denominator.masked_fill(denominator == 0, 1)
