"""Training form: torch's fused attention."""

import torch.nn.functional as F
from torch import Tensor

from ..dtypes import accumulation_dtype, full_precision
from ..masked_softmax import masked_softmax


def softmax_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    padding_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    need_weights: bool = False,
) -> tuple[Tensor, Tensor | None]:
    """Attention of every query to every key that is not padding; specified by :func:`.naive.softmax_attention`.

    Args:
        q: ``(B, H, T, D)``.
        k: ``(B, H, S, D)``.
        v: ``(B, H, S, E)``.
        padding_mask: ``(B, S)`` bool, True = padding.
        dropout_p: dropout probability of the weights.
        need_weights: also return the weights, which costs a T x S tensor. The output is the same.

    Returns:
        ``(B, H, T, E)`` in the dtype of ``q`` (under autocast in autocast's), and the weights ``(B, H, T, S)`` before
        dropout or None.
    """
    padded = None if padding_mask is None else padding_mask[:, None, None, :]
    attend = None if padded is None else ~padded
    out = F.scaled_dot_product_attention(q, k, v, attn_mask=attend, dropout_p=dropout_p)
    return out, _weights(q, k, padded) if need_weights else None


def _weights(q: Tensor, k: Tensor, padded: Tensor | None) -> Tensor:
    dtype = accumulation_dtype(q)
    with full_precision(q):
        scores = (q.to(dtype) * q.shape[-1] ** -0.5) @ k.to(dtype).mT
    return masked_softmax(scores, padded, dim=-1).to(q.dtype)
