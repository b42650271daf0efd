"""Training form: real steps moved together, so that all sentences have the same weights, and torch's attention."""

from torch import Tensor

from ..padding import Padding, PaddingLike
from ..softmax_attention import softmax_attention


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
    """Attention to L slots, linear in S; specified by :func:`.naive.linformer_attention`.

    Args:
        q: ``(B, H, T, D)``.
        k: ``(B, H, S, D)``.
        v: ``(B, H, S, D)``.
        key_sums: ``(L, N)``, N at least S.
        value_sums: ``(L, N)``.
        padding: of the steps.
        dropout_p: dropout probability of the weights of the slots.

    Returns:
        ``(B, H, T, D)`` in the dtype of ``q``.
    """
    slots = linformer_slots(k, v, key_sums, value_sums, padding=padding)
    return softmax_attention(q, *slots, dropout_p=dropout_p)[0]


def linformer_slots(
    k: Tensor, v: Tensor, key_sums: Tensor, value_sums: Tensor, *, padding: PaddingLike = None
) -> tuple[Tensor, Tensor]:
    """The slots' keys and values, each ``(B, H, L, D)``: all that queries read, whatever the length.

    Arguments: :func:`linformer_attention`.
    """
    padding = Padding.of(padding)
    k, v = padding.pack_left(k), padding.pack_left(v)
    return key_sums[:, : k.shape[2]] @ k, value_sums[:, : v.shape[2]] @ v


def linformer_weights(slot_weights: Tensor, value_sums: Tensor, steps: int, *, padding: PaddingLike = None) -> Tensor:
    """The weight of each step in the output, quadratic: the weights of slots times those of F.

    They may be negative and need not sum to 1.

    Args:
        slot_weights: ``(B, H, T, L)``.
        value_sums: F, ``(L, N)``.
        steps: S.
        padding: of the steps.

    Returns:
        ``(B, H, T, S)``.
    """
    padding = Padding.of(padding)
    weights = slot_weights @ value_sums[:, :steps]
    if padding.mask is None:
        return weights
    columns = padding.positions[:, None, None].expand_as(weights)
    return weights.gather(-1, columns).masked_fill(padding.mask[:, None, None], 0)
