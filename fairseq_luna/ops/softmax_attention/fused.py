"""The form that trains: torch's own fused attention."""

import torch.nn.functional as F
from torch import Tensor


def softmax_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    padding_mask: Tensor | None = None,
    dropout_p: float = 0.0,
) -> Tensor:
    """Attention of every query to every key that is not padding, without its weights.

    The first result of :func:`.naive.softmax_attention`, which states it; use that one where the weights
    themselves are wanted.

    Args:
        q: ``(B, H, T, D)``.
        k: ``(B, H, S, D)``.
        v: ``(B, H, S, E)``.
        padding_mask: ``(B, S)`` bool, True = padding.
        dropout_p: probability with which a weight is dropped.

    Returns:
        ``(B, H, T, E)`` in the dtype of ``q``.
    """
    attend = None if padding_mask is None else ~padding_mask[:, None, None, :]
    return F.scaled_dot_product_attention(q, k, v, attn_mask=attend, dropout_p=dropout_p)
