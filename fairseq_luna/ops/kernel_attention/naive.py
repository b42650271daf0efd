"""Specification: the weight of every step for every query, bidirectional and causal."""

import torch
import torch.nn.functional as F
from torch import Tensor

from ..dtypes import accumulation_dtype
from ..padding import Padding, PaddingLike


def kernel_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    normaliser: str = "sum",
    padding: PaddingLike = None,
    dropout_p: float = 0.0,
) -> Tensor:
    """Attention whose weights are products of features, in place of a softmax.

        y_i = sum over j of w_ij d_j v_j,     with j over the real steps and
        w_ij = q_i . k_j / (sum over l of q_i . k_l)             "sum"
        w_ij = q_i . k_j / max(|sum over l of q_i . k_l|, 1)     "bounded", for signed features
        w_ij = sum over r of q_ir k_jr / (sum over l of k_lr)    "each feature"

    where q and k are features of :mod:`..feature_maps`, which one depends on the attention: linear (arXiv 2006.16236)
    and Performer (arXiv 2009.14794) are "sum", RFA (arXiv 2103.02143) is "bounded", efficient attention
    (arXiv 1812.01243) is "each feature". A denominator of 0 counts as 1; the other forms
    take one below 1e-30 a step for 0. d is 1, or with dropout 0 or 1/(1 - p).

    Args:
        q: ``(B, H, T, R)`` features of the queries.
        k: ``(B, H, S, R)`` features of the keys.
        v: ``(B, H, S, E)``.
        normaliser: "sum", "bounded" or "each feature".
        padding: ``(B, S)`` bool, True = padding: the step has no weight. If all steps are padding, y is 0.
        dropout_p: probability that a head leaves out a step, for all queries.

    Returns:
        ``(B, H, T, E)`` in the dtype of ``v``. Sums are in fp32 for half precision.
    """
    padding_mask = Padding.of(padding).mask
    return weighted(q, k, v, normaliser, padding_mask, dropout_p, causal=False)


def kernel_causal_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    normaliser: str = "sum",
    padding: PaddingLike = None,
    dropout_p: float = 0.0,
) -> Tensor:
    """:func:`kernel_attention` with j and l over the real steps up to i, of the same sequence: S = T.

    Before the first real step y is 0. As in the code of RFA's authors, "bounded" divides by the larger of 1 and the
    sum itself, not its size.
    """
    padding_mask = Padding.of(padding).mask
    return weighted(q, k, v, normaliser, padding_mask, dropout_p, causal=True)


def weighted(
    q: Tensor, k: Tensor, v: Tensor, normaliser: str, padding_mask: Tensor | None, dropout_p: float, *, causal: bool
) -> Tensor:
    dtype = accumulation_dtype(q)
    q, k, values = q.to(dtype), k.to(dtype), v.to(dtype)
    if padding_mask is not None:
        k = k.masked_fill(padding_mask[:, None, :, None], 0)
    if normaliser == "each feature":
        totals = k.cumsum(2) if causal else k.sum(2, keepdim=True)
        products = (q / nonzero(totals)) @ k.mT
    else:
        products = q @ k.mT
    if causal:
        products = products.tril()
    if normaliser == "sum":
        products = products / nonzero(products.sum(-1, keepdim=True))
    elif normaliser == "bounded":
        totals = products.sum(-1, keepdim=True)
        products = products / (totals if causal else totals.abs()).clamp(min=1)
    kept = F.dropout(values.new_ones(values.shape[:-1]), dropout_p)[..., None]
    return (products @ (kept * values)).to(v.dtype)


def nonzero(denominator: Tensor) -> Tensor:
    return torch.where(denominator == 0, 1, denominator)
