"""Specification: a loop over the steps."""

import torch
from torch import Tensor

from ..dtypes import accumulation_dtype
from ..padding import Padding, PaddingLike


def prefix_attention(q: Tensor, k: Tensor, v: Tensor, *, padding: PaddingLike = None) -> Tensor:
    """Causal linear attention as a running mean: ``q_t`` times the mean of ``k_j v_j^T`` over the steps up to ``t``.

        F_t = (1/n_t) q_t (sum over real steps j <= t of k_j v_j^T)

    where ``n_t`` is the number of real steps up to ``t``. Padded steps are neither added nor counted, at any position;
    before the first real step the output is zero. Source: the function f of Luna's causal attention
    (arXiv 2106.01540, section 3.4).

    Args:
        q, k: ``(B, H, T, D)``.
        v: ``(B, H, T, E)``.
        padding: ``(B, T)`` bool, True = padding; None = no padding.

    Returns:
        ``(B, H, T, E)`` in the dtype of ``q``; summed in fp32 if ``q`` is half precision.
    """
    padding_mask = Padding.of(padding).mask
    batch, heads = q.shape[:2]
    dtype = accumulation_dtype(q)
    mean = q.new_zeros(batch, heads, k.shape[-1], v.shape[-1], dtype=dtype)
    count = q.new_zeros(batch, 1, 1, 1, dtype=dtype)
    outputs = []
    for t, (q_t, k_t, v_t) in enumerate(zip(*(x.to(dtype).unbind(2) for x in (q, k, v)), strict=True)):
        real = torch.ones_like(count)
        if padding_mask is not None:
            real = (~padding_mask[:, t]).to(dtype).view(batch, 1, 1, 1)
        count = count + real
        mean = mean + real * (k_t[..., :, None] * v_t[..., None, :] - mean) / count.clamp(min=1)
        outputs.append((q_t[:, :, None] @ mean)[:, :, 0])
    return torch.stack(outputs, dim=2).to(q.dtype)
