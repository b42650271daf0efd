"""Specification: a loop over the steps."""

import torch
from torch import Tensor

from ..dtypes import accumulation_dtype
from ..padding import Padding, PaddingLike


def linear_recurrence(f: Tensor, b: Tensor, *, padding: PaddingLike = None) -> Tensor:
    """The state of each channel after each step.

        h_t = f_t h_{t-1} + b_t,     h_{-1} = 0

    A padded step leaves h as it is, at any position. Source: the recurrence of simple recurrent units
    (arXiv 1709.02755, equation 2).

    Args:
        f: ``(T, B, C)``; with 0 <= f <= 1 no state grows beyond the sum of ``|b|``.
        b: ``(T, B, C)``.
        padding: ``(B, T)`` bool, True = padding; None = no padding.

    Returns:
        ``(T, B, C)`` in the dtype of ``b``; computed in fp32 for half precision.
    """
    padding_mask = Padding.of(padding).mask
    dtype = accumulation_dtype(b)
    h, states = torch.zeros_like(b[0], dtype=dtype), []
    for t in range(len(b)):
        following = f[t].to(dtype) * h + b[t].to(dtype)
        h = following if padding_mask is None else torch.where(padding_mask[:, t, None], h, following)
        states.append(h)
    return torch.stack(states).to(b.dtype)
