"""The specification: map the sequence, cut it into heads, attend."""

from typing import NamedTuple

import torch.nn.functional as F
from torch import Tensor

from ..dropout import Dropout, no_dropout
from ..softmax_attention.naive import softmax_attention


class Affine(NamedTuple):
    """A linear map as ``torch.nn.Linear`` holds it."""

    weight: Tensor  # (C, C), output first
    bias: Tensor | None  # (C,)


def pack(
    q: Tensor,
    context: Tensor,
    key: Affine,
    value: Affine,
    *,
    padding_mask: Tensor | None = None,
    dropout: Dropout = no_dropout,
) -> Tensor:
    """Attend from the slots to a sequence: Luna's pack attention (arXiv 2106.01540, section 3.2).

    Args:
        q: the slots' queries, ``(B, H, L, D)``.
        context: ``(B, T, C)``, C = H D.
        key, value: make keys and values of ``context``.
        padding_mask: ``(B, T)`` bool, True = padding: the step is not attended to. Where all steps are padding, the
            output is zero.
        dropout: applied to the weights.

    Returns:
        ``(B, H, L, D)`` in the dtype of ``q``.
    """
    k, v = (heads_of(F.linear(context, *affine), q.shape[1]) for affine in (key, value))
    return softmax_attention(q, k, v, padding_mask=padding_mask, dropout=dropout)[0]


def unpack(
    x: Tensor,
    k: Tensor,
    v: Tensor,
    query: Affine,
    out: Affine,
    *,
    padding_mask: Tensor | None = None,
    dropout: Dropout = no_dropout,
) -> Tensor:
    """Attend from a sequence to the slots: Luna's unpack attention, and what comes after it.

    Args:
        x: ``(B, T, C)``, C = H D.
        k, v: the slots' keys and values, ``(B, H, L, D)``.
        query: makes queries of ``x``.
        out: the map of the heads' outputs, one after the other.
        padding_mask: ``(B, L)`` bool, True = padding: the slot is not read. Where all slots are padding, ``out`` maps
            zeros.
        dropout: applied to the weights.

    Returns:
        ``(B, T, C)`` in the dtype of ``x``.
    """
    q = heads_of(F.linear(x, *query), k.shape[1])
    y, _ = softmax_attention(q, k, v, padding_mask=padding_mask, dropout=dropout)
    return F.linear(y.transpose(1, 2).flatten(2), *out)


def heads_of(x: Tensor, heads: int) -> Tensor:
    """``(B, T, C)`` to ``(B, H, T, C / H)``."""
    return x.unflatten(-1, (heads, -1)).transpose(1, 2)
