"""Softmax and mean over the entries that are not padding, and the mask of causal attention."""

import torch
from torch import Tensor

from .dtypes import accumulation_dtype
from .padding import Padding, computed_once


def masked_softmax(scores: Tensor, padded: Tensor | None, *, dim: int) -> Tensor:
    """Softmax over ``dim`` with weight 0 for padding; if all is padding, weights and gradients are 0.

    ``padded`` is bool, broadcastable to ``scores``, True = padding; None = no padding.
    """
    if padded is None:
        return scores.softmax(dim)
    # A finite minimum keeps NaN out of a softmax over padding only; the second mask sets its weights to 0.
    return scores.masked_fill(padded, torch.finfo(scores.dtype).min).softmax(dim).masked_fill(padded, 0)


@computed_once
def unseen_keys(padding: Padding, steps: int, device: torch.device) -> Tensor:
    """The keys that each of T ``steps`` does not see in causal attention: ``(B or 1, 1, T, T)`` bool.

    These are the later keys and the padding; ``padding (B, T)`` belongs to the keys.
    """
    later = torch.ones(1, 1, steps, steps, dtype=torch.bool, device=device).triu(1)
    return later if padding.mask is None else later | padding.mask[:, None, None]


def masked_mean(x: Tensor, padding_mask: Tensor) -> Tensor:
    """The mean over T of ``x (T, B, C)``, summed in fp32 for half precision.

    Args:
        x: ``(T, B, C)``.
        padding_mask: ``(B, T)`` bool, True = padding; a sentence of padding alone has a mean of 0.

    Returns:
        ``(B, C)`` in the dtype of ``x``.
    """
    real = ~padding_mask.t()[:, :, None]
    total = torch.where(real, x, 0).sum(0, dtype=accumulation_dtype(x))
    return (total / real.sum(0).clamp(min=1)).to(x.dtype)
