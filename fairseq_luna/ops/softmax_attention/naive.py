"""Specification: ``softmax(q k^T / sqrt(D)) v``."""

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from ..dtypes import accumulation_dtype
from ..padding import Padding, PaddingLike


def softmax_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    padding: PaddingLike = None,
    bias: Tensor | None = None,
    dropout_p: float = 0.0,
    need_weights: bool = False,
) -> tuple[Tensor, Tensor | None]:
    """Attention of every query to every key that is not padding (arXiv 1706.03762, equation 1).

    Args:
        q: ``(B, H, T, D)``.
        k: ``(B, H, S, D)``.
        v: ``(B, H, S, E)``.
        padding: ``(B, S)`` bool, True = padding: the key is not attended to. If all keys are padding, weights
            and output are zero.
        bias: added to the scores, broadcastable to ``(B, H, T, S)``.
        dropout_p: dropout probability of the weights.
        need_weights: also return the weights.

    Returns:
        ``(B, H, T, E)`` and the weights ``(B, H, T, S)`` before dropout or None, in the dtype of ``q``. The softmax
        is computed in fp32 if ``q`` is half precision.
    """
    padding_mask = Padding.of(padding).mask
    dtype = accumulation_dtype(q)
    scores = q.to(dtype) @ k.to(dtype).transpose(-1, -2) / math.sqrt(q.shape[-1])
    if bias is not None:
        scores = scores + bias
    if padding_mask is not None:
        scores = scores.masked_fill(padding_mask[:, None, None, :], -torch.inf)
        nothing = padding_mask.all(dim=1)[:, None, None, None]
        weights = scores.masked_fill(nothing, 0).softmax(-1).masked_fill(nothing, 0)
    else:
        weights = scores.softmax(-1)
    out = F.dropout(weights, dropout_p) @ v.to(dtype)
    return out.to(q.dtype), weights.to(q.dtype) if need_weights else None
