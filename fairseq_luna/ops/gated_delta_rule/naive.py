"""Specification: a loop over the steps."""

import torch
from torch import Tensor

from ..dtypes import accumulation_dtype
from ..padding import Padding, PaddingLike


def gated_delta_rule(
    q: Tensor, k: Tensor, v: Tensor, log_decay: Tensor, beta: Tensor, *, padding: PaddingLike = None
) -> Tensor:
    """Causal linear attention that forgets, and writes only what its state does not yet return for the key.

        S_t = exp(g_t) (I - b_t k_t k_t^T) S_{t-1} + b_t k_t v_t^T,     y_t = q_t^T S_t

    with q and k divided by their L2 norm, whose square is at least 1e-6. At padding g and b are 0. Source: gated
    DeltaNet (arXiv 2412.06464, equation 10). Published code divides q by sqrt(D) too.

    Args:
        q, k: ``(B, H, T, D)``.
        v: ``(B, H, T, E)``.
        log_decay: g, at most 0: ``(B, H, T)``.
        beta: b, from 0 to 1: ``(B, H, T)``.
        padding: ``(B, T)`` bool, True = padding, anywhere; None = no padding.

    Returns:
        ``(B, H, T, E)`` in the dtype of ``v``; summed in fp32 if ``v`` is half precision.
    """
    padding_mask = Padding.of(padding).mask
    dtype = accumulation_dtype(v)
    state = v.new_zeros(*k.shape[:2], k.shape[-1], v.shape[-1], dtype=dtype)
    queries, keys = (x / (x.square().sum(-1, keepdim=True) + 1e-6).sqrt() for x in (q.to(dtype), k.to(dtype)))
    outputs = []
    for t in range(v.shape[2]):
        real = v.new_ones(v.shape[0], dtype=dtype) if padding_mask is None else (~padding_mask[:, t]).to(dtype)
        real, key = real[:, None, None, None], keys[:, :, t, :, None]
        decay, strength = (real * x[:, :, t, None, None].to(dtype) for x in (log_decay, beta))
        state = decay.exp() * (state - strength * key @ (key.mT @ state))
        state = state + strength * key * v[:, :, t, None].to(dtype)
        outputs.append(queries[:, :, t, None] @ state)
    return torch.cat([v[:, :, :0].to(dtype), *outputs], dim=2).to(v.dtype)
