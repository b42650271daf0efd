"""Specification: softmax attention to weighted sums of keys and values."""

from torch import Tensor

from ..dtypes import accumulation_dtype
from ..padding import Padding, PaddingLike
from ..softmax_attention.naive import softmax_attention


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
    slots = linformer_slots(k, v, key_sums, value_sums, padding=padding_mask)
    return softmax_attention(q, *slots, dropout_p=dropout_p)[0]


def linformer_slots(
    k: Tensor, v: Tensor, key_sums: Tensor, value_sums: Tensor, *, padding: PaddingLike = None
) -> tuple[Tensor, Tensor]:
    """``E k`` and ``F v``, each ``(B, H, L, D)`` in the dtype of ``k``; arguments: :func:`linformer_attention`."""
    padding_mask = Padding.of(padding).mask
    sums = []
    for x, weight in ((k, key_sums), (v, value_sums)):
        dtype = accumulation_dtype(x)
        weights = weight[:, : x.shape[2]].to(dtype)
        if padding_mask is None:
            total = weights @ x.to(dtype)
        else:
            of_sentences = (
                weights[:, Padding(padding_mask).positions].transpose(0, 1).masked_fill(padding_mask[:, None], 0)
            )
            total = of_sentences[:, None] @ x.to(dtype)
        sums.append(total.to(x.dtype))
    return sums[0], sums[1]
