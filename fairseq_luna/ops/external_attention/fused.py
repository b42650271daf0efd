"""Training form: one logarithm of a sum of exponentials for each slot, whole or cumulative."""

import torch
from torch import Tensor

from ..dropout import drop
from ..dtypes import accumulation_dtype, full_precision
from ..padding import Padding, PaddingLike


def external_attention(
    q: Tensor, keys: Tensor, values: Tensor, *, padding: PaddingLike = None, dropout_p: float = 0.0
) -> Tensor:
    """Attention to S learned slots, linear in T; specified by :func:`.naive.external_attention`.

    Args:
        q: ``(B, H, T, D)``.
        keys: ``(S, D)``.
        values: ``(S, E)``.
        padding: of the steps.
        dropout_p: dropout probability of the weights.

    Returns:
        ``(B, H, T, E)`` in the dtype of ``q``.
    """
    padding = Padding.of(padding)
    scores = slot_scores(q, keys)
    totals = without_padding(scores, padding).logsumexp(2, keepdim=True)
    nothing = None if padding.mask is None else padding.mask.all(1)[:, None, None, None]
    return read_slots(scores, totals, values, nothing, dropout_p).to(q.dtype)


def external_causal_attention(
    q: Tensor, keys: Tensor, values: Tensor, *, padding: PaddingLike = None, dropout_p: float = 0.0
) -> Tensor:
    """Causal attention to S learned slots, linear in T; specified by :func:`.naive.external_causal_attention`.

    Arguments are those of :func:`external_attention`.
    """
    padding = Padding.of(padding)
    scores = slot_scores(q, keys)
    added = without_padding(scores, padding)
    # As in dtypes.running_sum.
    totals = (added.double() if added.is_cuda else added).logcumsumexp(2).to(scores.dtype)
    nothing = None if padding.mask is None else (padding.counts == 0)[:, None, :, None]
    return read_slots(scores, totals, values, nothing, dropout_p).to(q.dtype)


def slot_scores(q: Tensor, keys: Tensor) -> Tensor:
    """``q (B, H, T, D)`` times the keys of the slots: ``(B, H, T, S)``, fp32 for half precision."""
    dtype = accumulation_dtype(q)
    with full_precision(q):
        return q.to(dtype) @ keys.to(dtype).mT


def without_padding(scores: Tensor, padding: PaddingLike) -> Tensor:
    """Scores that add nothing to a sum of exponentials at padding; finite, because gradients of -inf are NaN."""
    padding = Padding.of(padding)
    if padding.mask is None:
        return scores
    return scores.masked_fill(padding.mask[:, None, :, None], torch.finfo(scores.dtype).min)


def read_slots(scores: Tensor, totals: Tensor, values: Tensor, nothing: Tensor | None, dropout_p: float) -> Tensor:
    """The values of the slots under a softmax of ``scores (B, H, T, S)`` relative to ``totals``, in the scores' dtype.

    ``nothing`` is True where ``totals`` have no real step: the result is 0.
    """
    if nothing is not None:
        totals = totals.masked_fill(nothing, 0)
    weights = (scores - totals).softmax(-1)
    if nothing is not None:
        weights = weights.masked_fill(nothing, 0)
    with full_precision(scores):
        return drop(weights, dropout_p) @ values.to(scores.dtype)
