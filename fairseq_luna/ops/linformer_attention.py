"""Linformer: attention to a fixed number of weighted sums of all keys and values."""

from torch import Tensor

from .dtypes import accumulation_dtype
from .padding import Padding, PaddingLike
from .softmax_attention import softmax_attention, softmax_attention_reference


def linformer_attention_reference(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    key_sums: Tensor,
    value_sums: Tensor,
    *,
    padding: PaddingLike = None,
    dropout_p: float = 0.0,
) -> Tensor:
    """Attention to L slots (arXiv 2006.04768, equation 7).

        y = softmax(q (E k)^T / sqrt(D)) (F v)

    A weight of E and F belongs to a position among the real steps of a sentence: the j-th of them has column j.

    Args:
        q: ``(B, H, T, D)``.
        k: ``(B, H, S, D)``.
        v: ``(B, H, S, D)``.
        key_sums: E, ``(L, N)``, N at least S.
        value_sums: F, ``(L, N)``.
        padding: ``(B, S)`` bool, True = padding, anywhere: not in the sums. Slots are never masked.
        dropout_p: dropout probability of the weights of the slots.

    Returns:
        ``(B, H, T, D)`` in the dtype of ``q``; sums and softmax are in fp32 for half precision. 0 for a sentence that
        is all padding.
    """
    padding_mask = Padding.of(padding).mask
    slots = linformer_slots_reference(k, v, key_sums, value_sums, padding=padding_mask)
    return softmax_attention_reference(q, *slots, dropout_p=dropout_p)[0]


def linformer_slots_reference(
    k: Tensor, v: Tensor, key_sums: Tensor, value_sums: Tensor, *, padding: PaddingLike = None
) -> tuple[Tensor, Tensor]:
    """``E k`` and ``F v``, each ``(B, H, L, D)`` in the dtype of ``k``: all that queries read, for any S.

    Arguments: :func:`linformer_attention_reference`.
    """
    padding_mask = Padding.of(padding).mask
    sums = []
    for x, weight in ((k, key_sums), (v, value_sums)):
        dtype = accumulation_dtype(x)
        weights = weight[:, : x.shape[2]].to(dtype)
        if padding_mask is None:
            total = weights @ x.to(dtype)
        else:
            per_sentence = (
                weights[:, Padding(padding_mask).positions].transpose(0, 1).masked_fill(padding_mask[:, None], 0)
            )
            total = per_sentence[:, None] @ x.to(dtype)
        sums.append(total.to(x.dtype))
    return sums[0], sums[1]


def linformer_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    key_sums: Tensor,
    value_sums: Tensor,
    *,
    padding: PaddingLike = None,
    dropout_p: float = 0.0,
) -> Tensor:
    """The same function as :func:`linformer_attention_reference`, linear in S."""
    slots = linformer_slots(k, v, key_sums, value_sums, padding=padding)
    return softmax_attention(q, *slots, dropout_p=dropout_p)[0]


def linformer_slots(
    k: Tensor, v: Tensor, key_sums: Tensor, value_sums: Tensor, *, padding: PaddingLike = None
) -> tuple[Tensor, Tensor]:
    """The same function as :func:`linformer_slots_reference`: real steps are moved together first.

    Then all sentences have the same weights.
    """
    padding = Padding.of(padding)
    k, v = padding.pack_left(k), padding.pack_left(v)
    return key_sums[:, : k.shape[2]] @ k, value_sums[:, : v.shape[2]] @ v


def linformer_weights(slot_weights: Tensor, value_sums: Tensor, steps: int, *, padding: PaddingLike = None) -> Tensor:
    """The weight of each step in the output, quadratic: the weights of the slots times F.

    They may be negative and need not sum to 1.

    Args:
        slot_weights: ``(B, H, T, L)``.
        value_sums: F, ``(L, N)``.
        steps: S.
        padding: ``(B, S)`` bool, True = padding.

    Returns:
        ``(B, H, T, S)``.
    """
    padding = Padding.of(padding)
    weights = slot_weights @ value_sums[:, :steps]
    if padding.mask is None:
        return weights
    columns = padding.positions[:, None, None].expand_as(weights)
    return weights.gather(-1, columns).masked_fill(padding.mask[:, None, None], 0)
