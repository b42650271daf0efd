"""Specification: for each step a softmax over the steps up to it."""

import torch
from torch import Tensor

from ..dtypes import accumulation_dtype
from ..padding import Padding, PaddingLike


def prefix_softmax(scores: Tensor, v: Tensor, *, padding: PaddingLike = None) -> Tensor:
    """Mean of the values up to each step ``t``, weighted by the softmax of the scores up to ``t``.

        o_t = sum over real j <= t of a_tj v_j,    a_t = softmax over real j <= t of s_j

    Padded steps have no weight, at any position; before the first real step the output is zero. Source: the additive
    attention of Fastformer (arXiv 2108.09084, equations 3 and 4), restricted to the steps up to t.

    Args:
        scores: ``(B, H, T)``; may have a wider dtype than ``v``.
        v: ``(B, H, T, D)``.
        padding: ``(B, T)`` bool, True = padding; None = no padding.

    Returns:
        ``(B, H, T, D)`` in the dtype of ``v``; softmax and sum are in fp32 if ``v`` is half precision.
    """
    padding_mask = Padding.of(padding).mask
    outputs = []
    for end in range(1, v.shape[2] + 1):
        padded = None if padding_mask is None else padding_mask[:, :end]
        outputs.append(softmax_mean(scores[:, :, :end], v[:, :, :end], padding=padded))
    return torch.cat(outputs, dim=2)


def softmax_mean(scores: Tensor, v: Tensor, *, padding: PaddingLike = None) -> Tensor:
    """``sum over j of softmax(s)_j v_j`` over all real steps: ``(B, H, 1, D)``, zero if there are none."""
    padding_mask = Padding.of(padding).mask
    dtype = accumulation_dtype(v)
    scores = scores.to(dtype)
    if padding_mask is None:
        weights = scores.softmax(-1)
    else:
        nothing = padding_mask.all(dim=1)[:, None, None]
        scores = scores.masked_fill(padding_mask[:, None, :], -torch.inf)
        weights = scores.masked_fill(nothing, 0).softmax(-1).masked_fill(nothing, 0)
    return (weights[..., None] * v.to(dtype)).sum(2, keepdim=True).to(v.dtype)
