"""Dropout of attention weights, and of what a residual connection adds.

An op is told by a function how to drop attention weights, so that it need not know whose dropout it is.
"""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from .dtypes import accumulation_dtype

Dropout = Callable[[Tensor], Tensor]


def no_dropout(x: Tensor) -> Tensor:
    return x


def add_dropped(residual: Tensor, x: Tensor, p: float) -> Tensor:
    """``residual + dropout(x)``, of any shape: each element of ``x`` is 0 with probability ``p``, else times 1/(1 - p).

    The same distribution as ``torch.nn.functional.dropout``, whose draws on a CPU take twice as long.
    """
    if p == 0:
        return residual + x
    if x.device.type != "cpu" or p == 1:
        return residual + F.dropout(x, p)
    # Half precision has too few numbers between 0 and 1 for p to be hit.
    kept = torch.rand_like(x, dtype=accumulation_dtype(x)).ge_(p).mul_(1 / (1 - p))
    return torch.addcmul(residual, x, kept.to(x.dtype))
