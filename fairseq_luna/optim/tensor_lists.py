"""Lists of tensors for torch's multi-tensor calls: the elements of one call, and their dtype."""

from collections.abc import Iterator

import torch
from torch import Tensor

HALF = (torch.float16, torch.bfloat16)

# Elements per multi-tensor call, which bound the temporaries. On a CPU the tensors should stay in the cache between
# calls (2.5 times faster); on an accelerator few launches are faster.
CACHE_NUMEL = 2**20
LAUNCH_NUMEL = 2**26


def has_multi_tensor_kernels(device: torch.device) -> bool:
    """Whether a multi-tensor call launches a few kernels and is not a loop.

    Its operands need one dtype and equal shapes.
    """
    return device.type != "cpu"


def chunks(params: list[Tensor]) -> Iterator[list[Tensor]]:
    """Split tensors of one device into lists for one call each; a larger tensor is a list of its own."""
    numel = LAUNCH_NUMEL if has_multi_tensor_kernels(params[0].device) else CACHE_NUMEL
    start, filled = 0, 0
    for i, p in enumerate(params):
        if i > start and filled + p.numel() > numel:
            yield params[start:i]
            start, filled = i, 0
        filled += p.numel()
    yield params[start:]


def cast(tensors: list[Tensor], dtype: torch.dtype) -> list[Tensor]:
    """``tensors``, which share a dtype, in ``dtype``: unchanged if they have it, otherwise copies."""
    if tensors[0].dtype == dtype:
        return tensors
    copies = [torch.empty_like(x, dtype=dtype) for x in tensors]
    torch._foreach_copy_(copies, tensors)
    return copies
