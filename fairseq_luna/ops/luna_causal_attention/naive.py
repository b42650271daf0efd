"""Specification: the equations, in a loop over the steps."""

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from ..dtypes import accumulation_dtype
from ..padding import Padding, PaddingLike


def luna_causal_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    pq: Tensor,
    pk: Tensor,
    *,
    activation: str = "softplus",
    padding: PaddingLike = None,
    packed_padding: PaddingLike = None,
    dropout_p: float = 0.0,
) -> tuple[Tensor, Tensor]:
    """Luna's causal attention (arXiv 2106.01540, section 3.4).

        A_t = w(pq pk_t / sqrt(D))                              L pack weights of step t
        S_t = mean over real j <= t of k_j A_j^T                D x L
        U_t = softmax over L of (q_t S_t / sqrt(D))             unpack weights
        M_t = mean over real j <= t of A_j v_j^T                L x D
        y_t = U_t M_t

    Args:
        q, k, v: ``(B, H, T, D)`` queries, keys and values of the sequence.
        pq: ``(B, H, L, D)`` queries of the packed slots.
        pk: ``(B, H, T, D)`` keys of the sequence for the pack attention.
        activation: w, "softplus" or "elu".
        padding: ``(B, T)`` bool, True = padding: the step is neither added nor counted.
        packed_padding: ``(B, L)`` bool, True = padding: the slot is not read.
        dropout_p: dropout probability of the pack weights and the unpack weights.

    Returns:
        ``y (B, H, T, D)`` in the dtype of ``q``, and the unpack weights ``U (B, H, T, L)`` before dropout in that of
        the sums, which is fp32 if ``q`` is half precision.
    """
    packed_padding_mask = Padding.of(packed_padding).mask
    padding_mask = Padding.of(padding).mask
    batch, heads, _, size = q.shape
    slots = pq.shape[2]
    dtype = accumulation_dtype(q)
    scale = 1 / math.sqrt(size)
    pack = F.dropout(positive(activation, pk.to(dtype) @ pq.to(dtype).transpose(-1, -2) * scale), dropout_p)

    mean_k, mean_v = pack.new_zeros(batch, heads, size, slots), pack.new_zeros(batch, heads, slots, size)
    count = pack.new_zeros(batch, 1, 1, 1)
    scores, means = [], []
    for t, (pack_t, q_t, k_t, v_t) in enumerate(zip(*(x.to(dtype).unbind(2) for x in (pack, q, k, v)), strict=True)):
        real = torch.ones_like(count)
        if padding_mask is not None:
            real = (~padding_mask[:, t]).to(dtype).view(batch, 1, 1, 1)
        count = count + real
        weight = real / count.clamp(min=1)
        mean_k = mean_k + weight * (k_t[..., :, None] * pack_t[..., None, :] - mean_k)
        mean_v = mean_v + weight * (pack_t[..., :, None] * v_t[..., None, :] - mean_v)
        scores.append((q_t[:, :, None] @ mean_k)[:, :, 0] * scale)
        means.append(mean_v)
    score = torch.stack(scores, dim=2)
    if packed_padding_mask is not None:
        score = score.masked_fill(packed_padding_mask[:, None, None, :], -torch.inf)
    unpack = score.softmax(-1)
    y = (F.dropout(unpack, dropout_p)[:, :, :, None] @ torch.stack(means, dim=2))[:, :, :, 0]
    return y.to(q.dtype), unpack


def positive(activation: str, scores: Tensor) -> Tensor:
    """w(s): ``log2(2^s + 1)`` or ``elu(s) + 1``."""
    if activation == "softplus":
        return torch.logaddexp2(scores, torch.zeros_like(scores))
    if activation == "elu":
        above = scores > 0
        return torch.where(above, scores + 1, scores.masked_fill(above, 0).exp())
    raise ValueError(f"activation {activation}: choose one of softplus, elu")
