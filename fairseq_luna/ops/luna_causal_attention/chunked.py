"""Training form: two prefix attentions in blocks of time."""

from torch import Tensor

from ..dropout import drop
from ..dtypes import accumulation_dtype
from ..prefix_attention import prefix_attention
from .shared import pack_activation, pack_scores, unpack_weights


def luna_causal_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    pq: Tensor,
    pk: Tensor,
    *,
    activation: str = "softplus",
    padding_mask: Tensor | None = None,
    packed_padding_mask: Tensor | None = None,
    dropout_p: float = 0.0,
) -> tuple[Tensor, Tensor]:
    """Luna's causal attention, linear in T in time and memory: a D x L state per block of steps, not per step.

    Args:
        q, k, v, pk: ``(B, H, T, D)``.
        pq: ``(B, H, L, D)``.
        activation, padding_mask, packed_padding_mask, dropout_p: as in :func:`.naive.luna_causal_attention`.

    Returns:
        ``y (B, H, T, D)`` and the unpack weights ``(B, H, T, L)`` before dropout, in the dtype of ``q``.

    Raises:
        ValueError: if ``activation`` is unknown.
    """
    return luna_causal_attention_from_scores(
        q,
        k,
        v,
        pack_scores(pq, pk),
        activation=activation,
        padding_mask=padding_mask,
        packed_padding_mask=packed_padding_mask,
        dropout_p=dropout_p,
    )


def luna_causal_attention_from_scores(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    scores: Tensor,
    *,
    activation: str = "softplus",
    padding_mask: Tensor | None = None,
    packed_padding_mask: Tensor | None = None,
    dropout_p: float = 0.0,
) -> tuple[Tensor, Tensor]:
    """:func:`luna_causal_attention` with the pack scores ``(B, H, T, L)`` in place of ``pq`` and ``pk``."""
    pack = drop(pack_activation(activation)(scores), dropout_p)
    products = prefix_attention(q.to(accumulation_dtype(q)), k, pack, padding_mask=padding_mask)
    unpack = unpack_weights(products, q.shape[-1], packed_padding_mask)
    y = prefix_attention(drop(unpack, dropout_p), pack, v, padding_mask=padding_mask)
    return y.to(q.dtype), unpack.to(q.dtype)
