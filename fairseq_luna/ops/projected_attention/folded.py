"""The form that trains on long sequences: the linear maps meet the few slots instead of the many steps.

A score is ``(W x) . k = x . (W^T k)``, and what is read is ``W_o sum_l u_l v_l = sum_l u_l (W_o v_l)``: with H heads
and L slots, two products of T x C with C x H L stand where two of T x C with C x C would.
"""

import torch
from torch import Tensor

from ..dropout import Dropout, no_dropout
from .naive import Affine


def folding_pays(*, steps: int, slots: int, channels: int, maps: int, products: int) -> bool:
    """Whether these forms are cheaper than the maps themselves.

    They are where they halve the multiplications, unless the folded keys would be larger than the sequence.

    Args:
        steps: T, of the sequence.
        slots: ``H L``, slots of all heads.
        channels: C.
        maps: how many maps of the sequence are saved.
        products: how many products of the sequence with ``slots`` columns stand in their place.
    """
    return steps >= slots and 2 * products * slots <= maps * channels


def pack(
    q: Tensor,
    context: Tensor,
    key: Affine,
    value: Affine,
    *,
    padding_mask: Tensor | None = None,
    dropout: Dropout = no_dropout,
) -> Tensor:
    """Attend from the slots to a sequence; :func:`.naive.pack` states it, arguments and all.

    Args:
        q: ``(B, H, L, D)``.
        context: ``(B, T, C)``.
        key, value: make keys and values of ``context``.
        padding_mask: ``(B, T)`` bool, True = padding.
        dropout: applied to the weights.

    Returns:
        ``(B, H, L, D)`` in the dtype of ``q``.
    """
    batch, heads, slots, size = q.shape
    scores = scores_of(context, q, key)
    if padding_mask is None:
        weights = scores.softmax(1)
    else:
        padded = padding_mask[:, :, None]
        # Masked by a finite number and then for good: a row of nothing but padding is zero, with no NaN on the way.
        weights = scores.masked_fill(padded, lowest(scores)).softmax(1).masked_fill(padded, 0)
    weights = dropout(weights).transpose(1, 2)
    read = slots_first(torch.bmm(weights, context), heads)
    out = torch.bmm(read, value.weight.unflatten(0, (heads, size)).transpose(1, 2))
    if value.bias is not None:
        # Dropout and padding change what the weights sum to.
        total = slots_first(weights.sum(2, keepdim=True), heads)
        out = torch.addcmul(out, total, value.bias.view(heads, 1, size))
    return out.view(heads, batch, slots, size).transpose(0, 1)


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
    """Attend from a sequence to the slots; :func:`.naive.unpack` states it, arguments and all.

    Args:
        x: ``(B, T, C)``.
        k, v: ``(B, H, L, D)``.
        query: makes queries of ``x``.
        out: the map of the heads' outputs.
        padding_mask: ``(B, L)`` bool, True = padding.
        dropout: applied to the weights.

    Returns:
        ``(B, T, C)`` in the dtype of ``x``.
    """
    _, heads, slots, size = k.shape
    if padding_mask is not None:
        v = v.masked_fill(padding_mask[:, None, :, None], 0)
    scores = scores_of(x, k, query, padding_mask=padding_mask).unflatten(2, (heads, slots))
    weights = dropout(scores.softmax(-1)).flatten(2)
    values = fold(v, out.weight.view(-1, heads, size).permute(1, 2, 0))
    return torch.bmm(weights, values) if out.bias is None else torch.baddbmm(out.bias, weights, values)


def scores_of(x: Tensor, k: Tensor, affine: Affine, *, padding_mask: Tensor | None = None) -> Tensor:
    """``affine(x) . k / sqrt(D)`` for every head, ``x (B, T, C)`` and ``k (B, H, L, D)``: ``(B, T, H L)``.

    Slots that ``padding_mask (B, L)`` marks have a score below all others.
    """
    _, heads, _, size = k.shape
    k = k * size**-0.5
    keys = fold(k, affine.weight.unflatten(0, (heads, size))).transpose(1, 2)
    if affine.bias is None and padding_mask is None:
        return torch.bmm(x, keys)
    constant = k.new_zeros(k.shape[:3]) if affine.bias is None else k @ affine.bias.view(heads, size, 1)
    constant = constant.view(k.shape[:3])
    if padding_mask is not None:
        constant = constant.masked_fill(padding_mask[:, None, :], lowest(constant))
    return torch.baddbmm(constant.flatten(1)[:, None], x, keys)


def fold(slots: Tensor, weight: Tensor) -> Tensor:
    """``slots (B, H, L, D)`` times ``weight (H, D, C)``, head by head: ``(B, H L, C)``."""
    batch, heads, length, size = slots.shape
    product = torch.bmm(slots.transpose(0, 1).reshape(heads, batch * length, size), weight)
    return product.unflatten(1, (batch, length)).transpose(0, 1).flatten(1, 2)


def slots_first(x: Tensor, heads: int) -> Tensor:
    """``(B, H L, C)`` to ``(H, B L, C)``."""
    return x.unflatten(1, (heads, -1)).transpose(0, 1).flatten(1, 2)


def lowest(x: Tensor) -> float:
    """A score that no real one comes near, and that may still be added to."""
    return torch.finfo(x.dtype).min / 2
