"""Dropout of attention weights, of whole steps and of residual branches."""

import torch
import torch.nn.functional as F
from torch import Tensor

from .dtypes import accumulation_dtype


def drop(x: Tensor, p: float) -> Tensor:
    """Dropout with probability ``p``; ``x`` unchanged if ``p`` is 0, so that it adds nothing to an exported graph."""
    return F.dropout(x, p) if p else x


def drop_steps(x: Tensor, p: float) -> Tensor:
    """Drop whole steps of each head of ``x (B, H, T, D)``, which drops their weights in a mean over time.

    With dropout the result has the dtype of the sums, because the remaining steps are scaled up.
    """
    return x * drop(x.new_ones(x.shape[:-1], dtype=accumulation_dtype(x)), p)[..., None] if p else x


def add_dropped(residual: Tensor, x: Tensor, p: float) -> Tensor:
    """``residual + dropout(x)``, of any shape: each element of ``x`` is 0 with probability ``p``, else times 1/(1 - p).

    The distribution is that of ``torch.nn.functional.dropout``, whose random numbers take twice as long on a CPU.
    """
    if p == 0:
        return residual + x
    if x.device.type != "cpu" or p == 1:
        return residual + F.dropout(x, p)
    # In fp32, because half precision has too few numbers between 0 and 1 to drop with probability p.
    kept = torch.rand_like(x, dtype=accumulation_dtype(x)).ge_(p).mul_(1 / (1 - p))
    return torch.addcmul(residual, x, kept.to(x.dtype))
