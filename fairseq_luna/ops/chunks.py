"""Cutting a dimension into chunks of one size."""

import torch
import torch.nn.functional as F
from torch import Tensor


def in_chunks(x: Tensor, size: int, *, dim: int, fill: float = 0) -> Tensor:
    """``x`` with dimension ``dim``, counted from the last, -1, cut into chunks of ``size``.

    The last chunk is filled up with ``fill``.

    Returns:
        ``x`` with the number of chunks and ``size`` in place of that dimension; a view if all chunks are full.
    """
    missing = -x.shape[dim] % size
    of_any_length = torch.compiler.is_compiling() or isinstance(missing, torch.SymInt)
    if of_any_length:
        # If nothing is missing, torch pads into the layout of x, where a graph has a contiguous one.
        x = x.contiguous()
    if of_any_length or missing:
        x = F.pad(x, [0, 0] * (-dim - 1) + [0, missing], value=fill)
    return x.unflatten(dim, (x.shape[dim] // size, size))
