"""Fast form: torch's convolution, and for a single step a sum, which is several times as fast on a CPU."""

import torch.nn.functional as F
from torch import Tensor


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
    return F.conv1d(x.permute(1, 2, 0), weight[:, None], groups=len(weight)).permute(2, 0, 1)
