"""External attention: attention to learned slots, whose weights are relative to the weights of the other steps."""

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from .dropout import drop
from .dtypes import accumulation_dtype, full_precision
from .padding import Padding, PaddingLike


def external_attention_reference(
    q: Tensor, keys: Tensor, values: Tensor, *, padding: PaddingLike = None, dropout_p: float = 0.0
) -> Tensor:
    """Attention to S learned slots (arXiv 2105.02358, equations 5 and 6).

        a = q K^T;    w_is = exp(a_is) / (sum over real j of exp(a_js));    y_i = sum over s of w_is V_s / (sum of w_i)

    The weights are normalized over the steps and then over the slots.

    Args:
        q: ``(B, H, T, D)``.
        keys: K, ``(S, D)``, the same for all heads.
        values: V, ``(S, E)``.
        padding: ``(B, T)`` bool, True = padding: not in the sum over j; its own output is unspecified.
        dropout_p: dropout probability of the weights.

    Returns:
        ``(B, H, T, E)`` in the dtype of ``q``; sums are in fp32 for half precision. 0 for a sentence that is all
        padding.
    """
    padding_mask = Padding.of(padding).mask
    scores = _scores_reference(q, keys)
    return _relative_reference(scores, scores, values, padding_mask, dropout_p).to(q.dtype)


def external_causal_attention_reference(
    q: Tensor, keys: Tensor, values: Tensor, *, padding: PaddingLike = None, dropout_p: float = 0.0
) -> Tensor:
    """:func:`external_attention_reference` with j over the real steps up to i. Before the first real step y is 0."""
    padding_mask = Padding.of(padding).mask
    scores, outputs = _scores_reference(q, keys), []
    for end in range(1, q.shape[2] + 1):
        padded = None if padding_mask is None else padding_mask[:, :end]
        outputs.append(_relative_reference(scores[:, :, end - 1 : end], scores[:, :, :end], values, padded, dropout_p))
    return torch.cat(outputs, 2).to(q.dtype)


def _scores_reference(q: Tensor, keys: Tensor) -> Tensor:
    dtype = accumulation_dtype(q)
    return q.to(dtype) @ keys.to(dtype).mT


def _relative_reference(
    scores: Tensor, seen: Tensor, values: Tensor, padding_mask: Tensor | None, dropout_p: float
) -> Tensor:
    """y for steps with ``scores (B, H, i, S)``, relative to the scores of the real steps j, ``seen (B, H, j, S)``."""
    if padding_mask is not None:
        nothing = padding_mask.all(1)[:, None, None, None]
        seen = seen.masked_fill(padding_mask[:, None, :, None], -torch.inf).masked_fill(nothing, 0)
    weights = (scores - seen.logsumexp(2, keepdim=True)).softmax(-1)
    if padding_mask is not None:
        weights = weights.masked_fill(nothing, 0)
    return F.dropout(weights, dropout_p) @ values.to(scores.dtype)


def external_attention(
    q: Tensor, keys: Tensor, values: Tensor, *, padding: PaddingLike = None, dropout_p: float = 0.0
) -> Tensor:
    """The same function as :func:`external_attention_reference`, linear in T: one log-sum-exp for each slot."""
    padding = Padding.of(padding)
    scores = slot_scores(q, keys)
    totals = without_padding(scores, padding).logsumexp(2, keepdim=True)
    nothing = None if padding.mask is None else padding.mask.all(1)[:, None, None, None]
    return read_slots(scores, totals, values, nothing, dropout_p).to(q.dtype)


def external_causal_attention(
    q: Tensor, keys: Tensor, values: Tensor, *, padding: PaddingLike = None, dropout_p: float = 0.0
) -> Tensor:
    """The same function as :func:`external_causal_attention_reference`, linear in T: a cumulative log-sum-exp."""
    padding = Padding.of(padding)
    scores = slot_scores(q, keys)
    added = without_padding(scores, padding)
    # In fp32 a GPU would lose digits in long sums, as in dtypes.running_sum.
    totals = (added.double() if added.device.type == "cuda" else added).logcumsumexp(2).to(scores.dtype)
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

    ``nothing`` is True where ``totals`` include no real step: the result is 0.
    """
    if nothing is not None:
        totals = totals.masked_fill(nothing, 0)
    weights = (scores - totals).softmax(-1)
    if nothing is not None:
        weights = weights.masked_fill(nothing, 0)
    with full_precision(scores):
        return drop(weights, dropout_p) @ values.to(scores.dtype)


class SlotMeans(NamedTuple):
    """The state of generation: for each slot the logarithm of the mean of ``exp(score)`` over the real steps so far.

    A mean, because the rounding errors of a sum would grow. The sum differs from it by the same factor for all slots,
    so that the weights of the slots are the same.
    """

    log_mean: Tensor  # (B, H, S), fp32 for half precision; 0 before the first real step
    steps: Tensor  # (B,), the number of these steps, in the same dtype


def external_causal_attention_step(
    q: Tensor,
    keys: Tensor,
    values: Tensor,
    state: SlotMeans | None,
    *,
    padding: PaddingLike = None,
    dropout_p: float = 0.0,
) -> tuple[Tensor, SlotMeans]:
    """One step of :func:`external_causal_attention_reference`: its arguments with T = 1; first the state is None.

    Returns:
        ``(B, H, 1, E)`` in the dtype of ``q``, and the state after this step.
    """
    scores = slot_scores(q, keys)
    newest = scores[:, :, 0]
    state = update_slot_means(
        newest, state or SlotMeans(torch.zeros_like(newest), newest.new_zeros(len(q))), Padding.of(padding)
    )
    nothing = (state.steps == 0)[:, None, None, None]
    return read_slots(scores, state.log_mean[:, :, None], values, nothing, dropout_p).to(q.dtype), state


def update_slot_means(scores: Tensor, state: SlotMeans, padding: PaddingLike) -> SlotMeans:
    """Add ``scores (B, H, S)`` to the means, except where the step is ``padding``."""
    padding = Padding.of(padding)
    steps = state.steps + 1
    count = steps[:, None, None]
    change = torch.logaddexp((-1 / count).log1p(), scores - state.log_mean - count.log())
    log_mean = state.log_mean + change
    if padding.mask is None:
        return SlotMeans(log_mean, steps)
    return SlotMeans(
        torch.where(padding.mask[..., None], state.log_mean, log_mean),
        torch.where(padding.mask[:, 0], state.steps, steps),
    )
