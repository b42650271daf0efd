"""The specification: ``softmax(q k^T / sqrt(D)) v``."""

import math

import torch
from torch import Tensor

from ..dropout import Dropout, no_dropout
from ..dtypes import accumulation_dtype


def softmax_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    padding_mask: Tensor | None = None,
    dropout: Dropout = no_dropout,
) -> tuple[Tensor, Tensor]:
    """Attention of every query to every key that is not padding (arXiv 1706.03762, equation 1).

    Args:
        q: ``(B, H, T, D)``.
        k: ``(B, H, S, D)``.
        v: ``(B, H, S, E)``.
        padding_mask: ``(B, S)`` bool, True = padding: the key is not attended to. Where all keys are padding,
            weights and output are zero.
        dropout: applied to the weights.

    Returns:
        ``(B, H, T, E)`` and the weights ``(B, H, T, S)`` before dropout, in the dtype of ``q``; the softmax
        is taken in fp32 when ``q`` is half precision.
    """
    dtype = accumulation_dtype(q)
    scores = q.to(dtype) @ k.to(dtype).transpose(-1, -2) / math.sqrt(q.shape[-1])
    if padding_mask is not None:
        scores = scores.masked_fill(padding_mask[:, None, None, :], -torch.inf)
        nothing = padding_mask.all(dim=1)[:, None, None, None]
        weights = scores.masked_fill(nothing, 0).softmax(-1).masked_fill(nothing, 0)
    else:
        weights = scores.softmax(-1)
    out = dropout(weights) @ v.to(dtype)
    return out.to(q.dtype), weights.to(q.dtype)
