"""Fast form: torch's convolution, and on a CPU sums, which are several times as fast."""

import torch
import torch.nn.functional as F
from torch import Tensor

from .shifted import ShiftedSum


def short_convolution(x: Tensor, weight: Tensor) -> Tensor:
    """Depthwise convolution over K consecutive steps; specified by :func:`.naive.short_convolution`.

    Args:
        x: ``(T + K - 1, B, C)``.
        weight: ``(C, K)``.

    Returns:
        ``(T, B, C)`` in the dtype of ``x`` (under autocast in autocast's).
    """
    if x.shape[0] == weight.shape[1]:
        return (x * weight.t()[:, None]).sum(0, keepdim=True)
    in_full = x.dtype in (torch.float32, torch.float64) and not torch.is_autocast_enabled("cpu")
    if x.device.type == "cpu" and in_full and not torch.compiler.is_compiling():
        return ShiftedSum.apply(x, weight)
    return F.conv1d(x.permute(1, 2, 0), weight[:, None], groups=len(weight)).permute(2, 0, 1)
