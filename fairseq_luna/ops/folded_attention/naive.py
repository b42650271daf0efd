"""Specification: map the sequence, split it into heads, attend."""

import torch.nn.functional as F
from torch import Tensor

from ..padding import Padding, PaddingLike
from ..softmax_attention.naive import softmax_attention
from .shared import Affine


def pack(
    q: Tensor,
    context: Tensor,
    key: Affine,
    value: Affine,
    *,
    padding: PaddingLike = None,
    bias: Tensor | None = None,
    dropout_p: float = 0.0,
) -> Tensor:
    """Attend from the slots to a sequence: Luna's pack attention (arXiv 2106.01540, section 3.2).

    Args:
        q: the queries of the slots, ``(B, H, L, D)``.
        context: ``(B, T, C)``, C = H D.
        key, value: the maps from ``context`` to keys and values.
        padding: ``(B, T)`` bool, True = padding: the step is not attended to. If all steps are padding, the
            output is zero.
        bias: added to the scores, ``(B, H, L, T)``.
        dropout_p: dropout probability of the weights.

    Returns:
        ``(B, H, L, D)`` in the dtype of ``q``.
    """
    padding_mask = Padding.of(padding).mask
    k, v = (heads_of(F.linear(context, *affine), q.shape[1]) for affine in (key, value))
    return softmax_attention(q, k, v, padding=padding_mask, bias=bias, dropout_p=dropout_p)[0]


def unpack(
    x: Tensor,
    k: Tensor,
    v: Tensor,
    query: Affine,
    out: Affine,
    *,
    padding: PaddingLike = None,
    dropout_p: float = 0.0,
) -> Tensor:
    """Attend from a sequence to the slots: Luna's unpack attention and its output map.

    Args:
        x: ``(B, T, C)``, C = H D.
        k, v: the keys and values of the slots, ``(B, H, L, D)``.
        query: the map from ``x`` to queries.
        out: the map of the concatenated heads.
        padding: ``(B, L)`` bool, True = padding: the slot is not read. If all slots are padding, the input of
            ``out`` is zero.
        dropout_p: dropout probability of the weights.

    Returns:
        ``(B, T, C)`` in the dtype of ``x``.
    """
    padding_mask = Padding.of(padding).mask
    q = heads_of(F.linear(x, *query), k.shape[1])
    y, _ = softmax_attention(q, k, v, padding=padding_mask, dropout_p=dropout_p)
    return F.linear(y.transpose(1, 2).flatten(2), *out)


def heads_of(x: Tensor, heads: int) -> Tensor:
    """``(B, T, C)`` to ``(B, H, T, C / H)``."""
    return x.unflatten(-1, (heads, -1)).transpose(1, 2)
