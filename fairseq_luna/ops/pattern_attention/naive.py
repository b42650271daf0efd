"""Specification: the whole T x T matrix of scores, with the steps that a pattern leaves out masked."""

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from ..dtypes import accumulation_dtype
from ..padding import Padding, PaddingLike
from .shared import Pattern, TopK, Window


def pattern_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    pattern: Pattern,
    *,
    padding: PaddingLike = None,
    causal: bool = False,
    dropout_p: float = 0.0,
) -> Tensor:
    """``y_i = softmax(q_i k_j / sqrt(D)) v_j`` over the real steps j that the pattern of step i has.

    With spans the weights are ``m(|i - j|) exp(q_i k_j / sqrt(D))``, divided by their sum.

    Args:
        q, k, v: ``(B, H, T, D)``.
        pattern: of positions among the real steps.
        padding: ``(B, T)`` bool, True = padding, anywhere: neither seen nor counted.
        causal: without the later steps; not for :class:`.RandomBlocks`.
        dropout_p: dropout probability of the weights.

    Returns:
        ``(B, H, T, D)`` in the dtype of ``q``; zero at padding. The softmax is in fp32 if ``q`` is half precision.
    """
    padding_mask = Padding.of(padding).mask
    padded = Padding(padding_mask).with_mask(q.shape[0], q.shape[2], q.device).existing_mask
    position = (~padded).cumsum(1) - 1
    i, j = position[:, None, :, None], position[:, None, None, :]
    hidden = ~pattern.sees(i, j, (~padded).sum(1)) | padded[:, None, :, None] | padded[:, None, None, :]
    if causal:
        hidden = hidden | (j > i)
    count = pattern.count if isinstance(pattern, TopK) else None
    m = pattern.factors((i - j).abs()) if isinstance(pattern, Window) and pattern.spans is not None else None
    return _attend(q, k, v, hidden, count, dropout_p, m)[0].to(q.dtype)


def topk_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    count: int,
    padding: PaddingLike = None,
    causal: bool = False,
    dropout_p: float = 0.0,
    need_weights: bool = False,
) -> tuple[Tensor, Tensor | None]:
    """Explicit sparse attention: over the steps whose score is at least the ``count``-th largest (arXiv 1912.11637).

    Args:
        q: ``(B, H, T, D)``.
        k, v: ``(B, H, S, D)``.
        count: steps that a query keeps; more if scores are equal.
        padding: ``(B, S)`` bool, True = padding: not seen.
        causal: query t sees the first t + 1 keys; T = S.
        dropout_p: dropout probability of the weights.
        need_weights: also return the weights.

    Returns:
        ``(B, H, T, D)`` and the weights ``(B, H, T, S)`` before dropout or None, in the dtype of ``q``. Zero where
        nothing is seen. Scores and softmax are in fp32 if ``q`` is half precision.
    """
    padding_mask = Padding.of(padding).mask
    hidden = torch.zeros(q.shape[0], 1, q.shape[2], k.shape[2], dtype=torch.bool, device=q.device)
    if padding_mask is not None:
        hidden = hidden | padding_mask[:, None, None, :]
    if causal:
        hidden = hidden | torch.ones_like(hidden).triu(1)
    out, weights = _attend(q, k, v, hidden, count, dropout_p)
    return out.to(q.dtype), weights.to(q.dtype) if need_weights else None


def _attend(
    q: Tensor, k: Tensor, v: Tensor, hidden: Tensor, count: int | None, dropout_p: float, m: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    dtype = accumulation_dtype(q)
    scores = q.to(dtype) @ k.to(dtype).mT / math.sqrt(q.shape[-1])
    hidden = hidden if m is None else hidden | (m == 0)
    scores = scores.masked_fill(hidden, -torch.inf)
    if count is not None:
        smallest = scores.sort(dim=-1, descending=True).values[..., : min(count, k.shape[2])][..., -1:]
        scores = scores.masked_fill(scores < smallest, -torch.inf)
    nothing = hidden.all(dim=-1, keepdim=True)
    weights = scores.masked_fill(nothing, 0).softmax(-1).masked_fill(nothing, 0)
    if m is not None:
        weights = weights * m / (weights * m).sum(-1, keepdim=True).masked_fill(nothing, 1)
    return F.dropout(weights, dropout_p) @ v.to(dtype), weights
