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

    On a CPU ``p`` is rounded to a multiple of 1/65,536.
    """
    if p == 0:
        return residual + x
    if x.device.type != "cpu" or p == 1:
        return residual + F.dropout(x, p)
    return torch.addcmul(residual, x, random_keep(x, p), value=1 / (1 - p))


def random_keep(x: Tensor, p: float) -> Tensor:
    """1 with probability 1 - p, else 0: in the shape and dtype of ``x``, on the CPU.

    A random integer of 64 bits serves four elements. ``torch.nn.functional.dropout`` draws one integer for each
    element, which takes most of its time.
    """
    bits = torch.empty((x.numel() + 3) // 4, dtype=torch.int64).random_(-(2**63), None)
    numbers = bits.view(torch.int16)[: x.numel()].view(x.shape)
    below = min(round(p * 2**16), 2**16 - 1)
    return torch.ge(numbers, below - 2**15, out=torch.empty(x.shape, dtype=x.dtype))
