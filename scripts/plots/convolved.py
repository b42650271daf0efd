"""The input of an attention's projections."""

from typing import Any

from torch import Tensor


def convolved(module: Any, x: Tensor, padding_mask: Tensor | None, *, causal: bool) -> Tensor:
    """``x (T, B, C)`` after the convolution of ``module``, if it has one; ``padding_mask (B, T)``, True = padding."""
    if module.convolution is None:
        return x
    if causal:
        return module.convolution.causal(x, padding_mask=padding_mask)[0]
    return module.convolution.centred(x, padding_mask=padding_mask)
