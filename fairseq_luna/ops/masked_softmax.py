"""Softmax over the entries that are not padding."""

import torch
from torch import Tensor


def masked_softmax(scores: Tensor, padded: Tensor | None, *, dim: int) -> Tensor:
    """Softmax over ``dim`` with weight 0 for padding; if all is padding, weights and gradients are 0.

    ``padded`` is bool, broadcastable to ``scores``, True = padding; None = no padding.
    """
    if padded is None:
        return scores.softmax(dim)
    # A finite minimum keeps NaN out of a softmax over padding only; the second mask sets its weights to 0.
    return scores.masked_fill(padded, torch.finfo(scores.dtype).min).softmax(dim).masked_fill(padded, 0)


def is_padding(mask: Tensor | None) -> Tensor | None:
    """The bool form of a padding mask that may be additive: -inf at padding."""
    return mask.isneginf() if mask is not None and mask.is_floating_point() else mask
