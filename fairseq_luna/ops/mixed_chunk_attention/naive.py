"""Specification: the weight of every step for every other one."""

import torch.nn.functional as F
from torch import Tensor

from ..dtypes import accumulation_dtype
from ..padding import Padding, PaddingLike


def mixed_chunk_attention(
    q: Tensor,
    k: Tensor,
    far_q: Tensor,
    far_k: Tensor,
    v: Tensor,
    bias: Tensor,
    *,
    chunk_size: int,
    padding: PaddingLike = None,
    causal: bool = False,
    dropout_p: float = 0.0,
) -> Tensor:
    """Mixed chunk attention (arXiv 2202.10447, section 3.2), without the gate.

        y_i = sum over j in the chunk of i of relu( q_i . k_j / c + b_{i-j} )^2 v_j
              + (1/n) q'_i sum over j of k'_j v_j^T

    The second sum is over all n steps. Causal: the first is over j <= i, the second over the n steps of earlier chunks,
    and 0 in the first chunk. Chunks are cut, and steps counted, without padding.

    Args:
        q, k: ``(B, H, T, S)``.
        far_q, far_k: q' and k', ``(B, H, T, S)``.
        v: ``(B, H, T, E)``.
        bias: b, by distance: causal ``(c,)`` from 0 on, otherwise ``(2 c - 1,)`` from 1 - c on.
        chunk_size: c.
        padding: ``(B, T)`` bool, True = padding, anywhere.
        causal: no step sees a later one.
        dropout_p: dropout probability of the weights in a chunk.

    Returns:
        ``(B, H, T, E)`` in the dtype of ``v``, zero at padding; squares and sums are in fp32 for half precision.
    """
    padding_mask = Padding.of(padding).mask
    dtype = accumulation_dtype(v)
    q, k, far_q, far_k, v_, bias = (x.to(dtype) for x in (q, k, far_q, far_k, v, bias))
    padded = Padding(padding_mask).with_mask(v.shape[0], v.shape[2], v.device).existing_mask
    p = Padding(padded).positions
    i, j = p[:, None, :, None], p[:, None, None, :]
    real = ~padded[:, None, None, :]
    near = real & (i // chunk_size == j // chunk_size)
    far = real.expand_as(near)
    if causal:
        near, far = near & (i >= j), real & (i // chunk_size > j // chunk_size)
    distance = (i - j) if causal else (i - j + chunk_size - 1)
    biases = bias[distance.clamp(0, len(bias) - 1)]
    weights = (q @ k.mT / chunk_size + biases).relu().square().masked_fill(~near, 0)
    far_weights = (far_q @ far_k.mT).masked_fill(~far, 0) / far.sum(-1, keepdim=True).clamp(min=1)
    y = (F.dropout(weights, dropout_p) + far_weights) @ v_.masked_fill(padded[:, None, :, None], 0)
    return y.masked_fill(padded[:, None, :, None], 0).to(v.dtype)
