"""Specification: the weights of learned slots, normalised over the steps and then over the slots."""

import torch
import torch.nn.functional as F
from torch import Tensor

from ..dtypes import accumulation_dtype
from ..padding import Padding, PaddingLike


def external_attention(
    q: Tensor, keys: Tensor, values: Tensor, *, padding: PaddingLike = None, dropout_p: float = 0.0
) -> Tensor:
    """Attention to S learned slots (arXiv 2105.02358, equations 5 and 6).

        a = q K^T;    w_is = exp(a_is) / (sum over real j of exp(a_js));    y_i = sum over s of w_is V_s / (sum of w_i)

    Args:
        q: ``(B, H, T, D)``.
        keys: K, ``(S, D)``, of all heads.
        values: V, ``(S, E)``.
        padding: ``(B, T)`` bool, True = padding: not in the sum over j; its own output is unspecified.
        dropout_p: dropout probability of the weights.

    Returns:
        ``(B, H, T, E)`` in the dtype of ``q``; sums are in fp32 for half precision. 0 for a sentence that is all
        padding.
    """
    padding_mask = Padding.of(padding).mask
    scores = _scores(q, keys)
    return _relative(scores, scores, values, padding_mask, dropout_p).to(q.dtype)


def external_causal_attention(
    q: Tensor, keys: Tensor, values: Tensor, *, padding: PaddingLike = None, dropout_p: float = 0.0
) -> Tensor:
    """:func:`external_attention` with j over the real steps up to i. Before the first real step y is 0."""
    padding_mask = Padding.of(padding).mask
    scores, outputs = _scores(q, keys), []
    for end in range(1, q.shape[2] + 1):
        padded = None if padding_mask is None else padding_mask[:, :end]
        outputs.append(_relative(scores[:, :, end - 1 : end], scores[:, :, :end], values, padded, dropout_p))
    return torch.cat(outputs, 2).to(q.dtype)


def _scores(q: Tensor, keys: Tensor) -> Tensor:
    dtype = accumulation_dtype(q)
    return q.to(dtype) @ keys.to(dtype).mT


def _relative(scores: Tensor, seen: Tensor, values: Tensor, padding_mask: Tensor | None, dropout_p: float) -> Tensor:
    """y for some steps with ``scores (B, H, i, S)``, relative to those of the real steps j, ``seen (B, H, j, S)``."""
    if padding_mask is not None:
        nothing = padding_mask.all(1)[:, None, None, None]
        seen = seen.masked_fill(padding_mask[:, None, :, None], -torch.inf).masked_fill(nothing, 0)
    weights = (scores - seen.logsumexp(2, keepdim=True)).softmax(-1)
    if padding_mask is not None:
        weights = weights.masked_fill(nothing, 0)
    return F.dropout(weights, dropout_p) @ values.to(scores.dtype)
