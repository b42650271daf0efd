"""Softmax over the entries that are not padding, and the mask of causal attention."""

import torch
from torch import Tensor

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
