"""Specification: softmax over scores that are given for pairs of positions."""

import torch
import torch.nn.functional as F
from torch import Tensor

from ..dtypes import accumulation_dtype
from ..padding import Padding, PaddingLike


def synthesizer_attention(
    scores: Tensor,
    v: Tensor,
    *,
    padding: PaddingLike = None,
    causal: bool = False,
    dropout_p: float = 0.0,
) -> Tensor:
    """Attention with given scores (arXiv 2005.00743, equation 2).

        y_i = sum_j w_ij v_j,    w_i = softmax_j( R[p_i, p_j] )

    ``p_i`` is the position of step i among the real steps of its sentence.

    Args:
        scores: R, ``(B, H, T, T)``, or ``(1, H, T, T)`` if all sentences have the same.
        v: ``(B, H, T, D)``.
        padding: ``(B, T)`` bool, True = padding, anywhere: neither seen nor counted.
        causal: the softmax is over j <= i.
        dropout_p: dropout probability of the weights.

    Returns:
        ``(B, H, T, D)`` in the dtype of ``v``, zero at padding; softmax and sums are in fp32 for half precision.
    """
    padding_mask = Padding.of(padding).mask
    batch, heads, steps, _ = v.shape
    p = _positions(v, padding_mask)
    rows = p[:, None, :, None].expand(-1, heads, -1, steps)
    of_steps = scores.expand(batch, -1, -1, -1).gather(2, rows).gather(3, rows.mT)
    return _attention(of_steps, v, padding_mask, causal, dropout_p)


def position_attention(
    q: Tensor,
    keys: Tensor,
    v: Tensor,
    *,
    padding: PaddingLike = None,
    causal: bool = False,
    dropout_p: float = 0.0,
) -> Tensor:
    """:func:`synthesizer_attention` with the scores ``R[p_i, p_j] = q_i . keys[p_j]``: keys are of positions.

    Args:
        q: ``(B, H, T, R)``, of words, not by position.
        keys: ``(H, T, R)``, by position.
        v, padding, causal, dropout_p: as there.

    Returns:
        ``(B, H, T, D)`` in the dtype of ``v``, zero at padding; softmax and sums are in fp32 for half precision.
    """
    padding_mask = Padding.of(padding).mask
    dtype = accumulation_dtype(v)
    of_steps = q.to(dtype) @ keys.to(dtype)[:, _positions(v, padding_mask)].transpose(0, 1).mT
    return _attention(of_steps, v, padding_mask, causal, dropout_p)


def _positions(v: Tensor, padding_mask: Tensor | None) -> Tensor:
    """The position of each step of ``v (B, H, T, D)`` among the real ones: ``(B, T)``."""
    return Padding(padding_mask).with_mask(v.shape[0], v.shape[2], v.device).positions


def _attention(scores: Tensor, v: Tensor, padding_mask: Tensor | None, causal: bool, dropout_p: float) -> Tensor:
    """Softmax attention with the scores of steps, ``(B, H, T, T)``."""
    steps, dtype = v.shape[2], accumulation_dtype(v)
    padded = Padding(padding_mask).with_mask(v.shape[0], steps, v.device).existing_mask
    hidden = padded[:, None, None, :]
    if causal:
        hidden = hidden | torch.ones(steps, steps, dtype=torch.bool, device=v.device).triu(1)
    hidden = hidden & ~padded[:, None, :, None]  # what padding sees is not read, but a softmax over nothing is NaN
    weights = scores.to(dtype).masked_fill(hidden, -torch.inf).softmax(-1)
    y = F.dropout(weights, dropout_p) @ v.to(dtype)
    return y.masked_fill(padded[:, None, :, None], 0).to(v.dtype)
