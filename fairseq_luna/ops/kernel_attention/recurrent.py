"""Causal generation form: a state of constant size, one step at a time."""

import torch
from torch import Tensor

from ..dtypes import accumulation_dtype, full_precision
from ..prefix_attention import PrefixMean, advance, initial_prefix_mean
from .fused import read_kernel_mean
from .shared import with_ones


def initial_kernel_mean(k: Tensor, v: Tensor) -> PrefixMean:
    """The state before the first step, for features ``k (B, H, any T, R)`` and values ``v (B, H, any T, E)``."""
    return initial_prefix_mean(k, with_ones(v[:, :, :0], accumulation_dtype(k), 0.0))


def kernel_causal_attention_step(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    state: PrefixMean,
    *,
    normaliser: str = "sum",
    padding_mask: Tensor | None = None,
    dropout_p: float = 0.0,
) -> tuple[Tensor, PrefixMean]:
    """One or more steps of :func:`.naive.kernel_causal_attention`, continued from ``state``.

    Args:
        q, k: ``(B, H, T, R)`` features, usually T = 1.
        v: ``(B, H, T, E)``.
        state: the mean of ``k_j [v_j, 1]^T`` over the previous steps.
        normaliser, padding_mask, dropout_p: as in :mod:`.naive`.

    Returns:
        ``(B, H, T, E)`` in the dtype of ``v``, and the state after these steps.
    """
    dtype = state.mean.dtype
    values = with_ones(v, dtype, dropout_p)
    outputs = []
    with full_precision(q):
        for t in range(q.shape[2]):
            step = slice(t, t + 1)
            padded = None if padding_mask is None else padding_mask[:, t]
            state = advance(k[:, :, step].to(dtype), values[:, :, step], state, padded=padded)
            outputs.append(read_kernel_mean(q[:, :, step], state, normaliser=normaliser, causal=True))
    out = outputs[0] if len(outputs) == 1 else torch.cat(outputs, dim=2)
    return out.to(v.dtype), state
