"""Softmax attention between a sequence and a few slots, with the linear maps of the sequence folded into the slots.

A score is ``(W x) . k = x . (W^T k)``, and an output is ``W_o sum_l u_l v_l = sum_l u_l (W_o v_l)``: for long sequences
the linear maps are applied to the few slots instead of the many steps. With H heads and L slots, two products of
T x C with C x H L replace two products of T x C with C x C.
"""

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from .dropout import drop
from .masked_softmax import masked_softmax
from .padding import Padding, PaddingLike
from .softmax_attention import softmax_attention_reference


class Affine(NamedTuple):
    """A linear map as an argument: weight and bias of a ``torch.nn.Linear``."""

    weight: Tensor  # (C, C), output first
    bias: Tensor | None  # (C,)


def pack_reference(
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
    k, v = (split_heads_reference(F.linear(context, *affine), q.shape[1]) for affine in (key, value))
    return softmax_attention_reference(q, k, v, padding=padding_mask, bias=bias, dropout_p=dropout_p)[0]


def unpack_reference(
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
    q = split_heads_reference(F.linear(x, *query), k.shape[1])
    y, _ = softmax_attention_reference(q, k, v, padding=padding_mask, dropout_p=dropout_p)
    return F.linear(y.transpose(1, 2).flatten(2), *out)


def split_heads_reference(x: Tensor, heads: int) -> Tensor:
    """``(B, T, C)`` to ``(B, H, T, C / H)``."""
    return x.unflatten(-1, (heads, -1)).transpose(1, 2)


def folding_pays(*, steps: int, slots: int, channels: int, maps: int, products: int) -> bool:
    """Whether folding at least halves the multiplications, with folded keys that are not larger than the sequence.

    Args:
        steps: T of the sequence.
        slots: ``H L``, the slots of all heads.
        channels: C.
        maps: the number of maps of the sequence that folding avoids.
        products: the number of products of the sequence with ``slots`` columns that replace them.
    """
    if torch.compiler.is_compiling() or isinstance(steps, torch.SymInt):
        return False  # a graph for any number of steps has one form, instead of one on each side of the bound
    return steps >= slots and 2 * products * slots <= maps * channels


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
    """The same function as :func:`pack_reference`, with the maps of ``context`` folded into the slots."""
    padding = Padding.of(padding)
    batch, heads, slots, size = q.shape
    keys, constant = folded_keys(q, key)
    # Steps last: a GPU's softmax over another axis is slow where that axis is long.
    scores = torch.baddbmm(constant.flatten(1)[:, :, None], keys, context.mT)
    if bias is not None:
        scores = scores + bias.to(scores.dtype).flatten(1, 2)
    padded = None if padding.mask is None else padding.mask[:, None, :]
    weights = drop(masked_softmax(scores, padded, dim=-1), dropout_p)
    read = slots_first(torch.bmm(weights, context), heads)
    out = torch.bmm(read, value.weight.unflatten(0, (heads, size)).transpose(1, 2))
    if value.bias is not None:
        # With dropout or padding the weights need not sum to 1.
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
    padding: PaddingLike = None,
    dropout_p: float = 0.0,
) -> Tensor:
    """The same function as :func:`unpack_reference`, with the maps of ``x`` and of the output folded into the slots."""
    padding = Padding.of(padding)
    _, heads, slots, size = k.shape
    v = padding.zero(v)
    scores = scores_of(x, k, query, padding=padding).unflatten(2, (heads, slots))
    weights = drop(scores.softmax(-1), dropout_p).flatten(2)
    values = fold(v, out.weight.view(-1, heads, size).permute(1, 2, 0))
    return torch.bmm(weights, values) if out.bias is None else torch.baddbmm(out.bias, weights, values)


def scores_of(x: Tensor, k: Tensor, affine: Affine, *, padding: PaddingLike = None) -> Tensor:
    """``affine(x) . k / sqrt(D)`` for every head, ``x (B, T, C)`` and ``k (B, H, L, D)``: ``(B, T, H L)``.

    Slots that are ``padding (B, L)`` have a score far below all others.
    """
    padding = Padding.of(padding)
    keys, constant = folded_keys(k, affine)
    if padding.mask is not None:
        constant = constant.masked_fill(padding.mask[:, None, :], lowest(constant))
    return torch.baddbmm(constant.flatten(1)[:, None], x, keys.mT)


def folded_keys(k: Tensor, affine: Affine) -> tuple[Tensor, Tensor]:
    """Keys ``(B, H L, C)`` and a constant ``(B, H, L)``: ``x . keys + constant`` is ``affine(x) . k / sqrt(D)``."""
    _, heads, _, size = k.shape
    k = k * size**-0.5
    keys = fold(k, affine.weight.unflatten(0, (heads, size)))
    if affine.bias is None:
        return keys, k.new_zeros(k.shape[:3])
    return keys, (k @ affine.bias.view(heads, size, 1)).view(k.shape[:3])


def fold(slots: Tensor, weight: Tensor) -> Tensor:
    """``slots (B, H, L, D)`` times ``weight (H, D, C)``, head by head: ``(B, H L, C)``."""
    batch, heads, length, size = slots.shape
    product = torch.bmm(slots.transpose(0, 1).reshape(heads, batch * length, size), weight)
    return product.unflatten(1, (batch, length)).transpose(0, 1).flatten(1, 2)


def slots_first(x: Tensor, heads: int) -> Tensor:
    """``(B, H L, C)`` to ``(H, B L, C)``."""
    return x.unflatten(1, (heads, -1)).transpose(0, 1).flatten(1, 2)


def lowest(x: Tensor) -> float:
    """A score far below all others; adding a real score to it does not overflow."""
    return torch.finfo(x.dtype).min / 2
