"""Precision of running sums: fp32 for half precision, and autocast off."""

from contextlib import AbstractContextManager, nullcontext

import torch
from torch import Tensor

HALF_DTYPES = (torch.float16, torch.bfloat16)


def accumulation_dtype(x: Tensor) -> torch.dtype:
    """fp32 for a half precision ``x``, else the dtype of ``x``."""
    return torch.float32 if x.dtype in HALF_DTYPES else x.dtype


def running_sum(x: Tensor, dim: int) -> Tensor:
    """The running sum of ``x``. On a CPU torch adds in fp64; in fp32 a GPU would lose digits in 100,000 steps."""
    return x.cumsum(dim, dtype=torch.float64).to(x.dtype) if x.device.type == "cuda" else x.cumsum(dim)


def full_precision(x: Tensor) -> AbstractContextManager[object]:
    """A context in which autocast is off on the device of ``x``: products of fp32 tensors stay fp32."""
    device = x.device.type
    # Entered only if needed: torch.export records every autocast context in its graph. torch.compile of torch 2.6 and
    # 2.11 cannot trace is_autocast_available; the devices that it compiles for have autocast.
    has_autocast = torch.compiler.is_compiling() or torch.amp.is_autocast_available(device)
    if has_autocast and torch.is_autocast_enabled(device):
        return torch.autocast(device, enabled=False)
    return nullcontext()
