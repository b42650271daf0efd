"""Softmax over the entries that are not padding, and the entries that a causal attention leaves out."""

import torch
from torch import Tensor

from .once_per_batch import once_per_batch


def masked_softmax(scores: Tensor, padded: Tensor | None, *, dim: int) -> Tensor:
    """Softmax over ``dim`` with weight 0 for padding; if all is padding, weights and gradients are 0.

    ``padded`` is bool, broadcastable to ``scores``, True = padding; None = no padding.
    """
    if padded is None:
        return scores.softmax(dim)
    # A finite minimum keeps NaN out of a softmax over padding only; the second mask sets its weights to 0.
    return scores.masked_fill(padded, torch.finfo(scores.dtype).min).softmax(dim).masked_fill(padded, 0)


@once_per_batch
def unseen_keys(padding_mask: Tensor | None, steps: int, device: torch.device) -> Tensor:
    """What each of T ``steps`` does not see in causal attention, padding and later ones: ``(B or 1, 1, T, T)`` bool.

    ``padding_mask (B, T)`` bool, True = padding.
    """
    later = torch.ones(1, 1, steps, steps, dtype=torch.bool, device=device).triu(1)
    return later if padding_mask is None else later | padding_mask[:, None, None]
