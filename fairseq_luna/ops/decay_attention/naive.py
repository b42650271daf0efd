"""Specification: a loop over the steps; in both directions, the weight of every step for every query."""

import torch
from torch import Tensor

from ..dtypes import accumulation_dtype
from ..padding import Padding, PaddingLike


def decay_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    log_decay: Tensor,
    *,
    padding: PaddingLike = None,
    causal: bool = True,
) -> Tensor:
    """Linear attention that forgets: each step multiplies the sum of the earlier ones by ``exp(g_t)``.

        S_t = exp(g_t) S_{t-1} + k_t v_t^T,     y_t = q_t^T S_t

    Thus step j has for step i the weight ``q_i . k_j exp(G_i - G_j)``, where G is the running sum of g. If not causal,
    all j have one, ``q_i . k_j exp(-|G_i - G_j|)``. At padding g and k are 0. Source: retention (arXiv 2307.08621,
    equation 6) with a constant g, Mamba-2 (arXiv 2405.21060, section 3.2) with one for each step.

    Args:
        q, k: ``(B, H, T, D)``.
        v: ``(B, H, T, E)``.
        log_decay: g, at most 0: ``(B, H, T)``, or broadcastable to it.
        padding: ``(B, T)`` bool, True = padding, anywhere; None = no padding.
        causal: no step sees a later one.

    Returns:
        ``(B, H, T, E)`` in the dtype of ``q``; summed in fp32 if ``q`` is half precision.
    """
    padding_mask = Padding.of(padding).mask
    dtype = accumulation_dtype(q)
    g = log_decay.to(dtype).expand(q.shape[:3])
    keys, values, queries = k.to(dtype), v.to(dtype), q.to(dtype)
    if padding_mask is not None:
        g = g.masked_fill(padding_mask[:, None], 0)
        keys = keys.masked_fill(padding_mask[:, None, :, None], 0)
    if not causal:
        total = g.double().cumsum(2)  # whose differences keep the digits of fp32
        decays = (total[..., :, None] - total[..., None, :]).abs().neg().exp().to(dtype)
        return ((queries @ keys.mT * decays) @ values).to(q.dtype)
    state = keys.new_zeros(*k.shape[:2], k.shape[-1], v.shape[-1])
    outputs = []
    for q_t, k_t, v_t, g_t in zip(*(x.unbind(2) for x in (queries, keys, values, g)), strict=True):
        state = g_t.exp()[..., None, None] * state + k_t[..., :, None] * v_t[..., None, :]
        outputs.append((q_t[:, :, None] @ state)[:, :, 0])
    return torch.stack(outputs, dim=2).to(q.dtype)
