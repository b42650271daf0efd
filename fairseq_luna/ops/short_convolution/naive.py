"""Specification: a weighted sum of K neighbouring steps for each channel."""

from torch import Tensor

from ..dtypes import accumulation_dtype


def short_convolution(x: Tensor, weight: Tensor) -> Tensor:
    """Depthwise convolution over K consecutive steps: each channel has its own K weights.

        y_t = sum over i < K of w_i ∘ x_{t+i}

    Args:
        x: ``(T + K - 1, B, C)``, including the caller's padding before the first and after the last step.
        weight: ``(C, K)``.

    Returns:
        ``(T, B, C)`` in the dtype of ``x``, summed in fp32 if ``x`` is half precision.
    """
    dtype = accumulation_dtype(x)
    windows = x.to(dtype).unfold(0, weight.shape[1], 1)  # (T, B, C, K)
    return (windows * weight.to(dtype)).sum(-1).to(x.dtype)
