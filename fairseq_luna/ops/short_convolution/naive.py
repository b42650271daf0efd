"""The specification: a weighted sum of K neighbouring steps, channel by channel."""

from torch import Tensor

from ..dtypes import accumulation_dtype


def short_convolution(x: Tensor, weight: Tensor) -> Tensor:
    """Every sum of K steps in a row, where each channel has weights of its own (depthwise convolution).

        y_t = sum over i < K of w_i ∘ x_{t+i}

    Args:
        x: ``(T + K - 1, B, C)``: what lies before the first step and after the last one is the caller's to give.
        weight: ``(C, K)``.

    Returns:
        ``(T, B, C)`` in the dtype of ``x``; sums are taken in fp32 when ``x`` is half precision.
    """
    dtype = accumulation_dtype(x)
    windows = x.to(dtype).unfold(0, weight.shape[1], 1)  # (T, B, C, K)
    return (windows * weight.to(dtype)).sum(-1).to(x.dtype)
