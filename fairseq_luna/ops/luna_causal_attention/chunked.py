"""The form that trains: two prefix attentions over blocks of time."""

from torch import Tensor

from ..dropout import Dropout, no_dropout
from ..dtypes import accumulation_dtype
from ..pack_activation import pack_activation
from ..prefix_attention.chunked import prefix_attention


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
    dropout: Dropout = no_dropout,
) -> tuple[Tensor, Tensor]:
    """Luna's causal attention; :func:`.naive.luna_causal_attention` states it, arguments and all.

    Linear in T in time and memory: no D x L state is kept for a step, only for a block of steps.

    Args:
        q: ``(B, H, T, D)`` queries of the sequence.
        k: ``(B, H, T, D)`` keys of the sequence.
        v: ``(B, H, T, D)`` values of the sequence.
        pq: ``(B, H, L, D)`` queries of the packed slots.
        pk: ``(B, H, T, D)`` keys of the sequence for the pack attention.
        activation: a name of :data:`..pack_activation.PACK_ACTIVATIONS`.
        padding_mask: ``(B, T)`` bool, True = padding.
        packed_padding_mask: ``(B, L)`` bool, True = padding.
        dropout: applied to the pack weights and to the unpack weights.

    Returns:
        ``y (B, H, T, D)`` and the unpack weights ``(B, H, T, L)`` before dropout, in the dtype of ``q``.
    """
    return luna_causal_attention_of_scores(
        q,
        k,
        v,
        pack_scores(pq, pk),
        activation=activation,
        padding_mask=padding_mask,
        packed_padding_mask=packed_padding_mask,
        dropout=dropout,
    )


def luna_causal_attention_of_scores(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    scores: Tensor,
    *,
    activation: str = "softplus",
    padding_mask: Tensor | None = None,
    packed_padding_mask: Tensor | None = None,
    dropout: Dropout = no_dropout,
) -> tuple[Tensor, Tensor]:
    """The same for whoever has the pack scores ``(B, H, T, L)`` already, what ``w`` is of."""
    pack = dropout(pack_activation(activation)(scores))
    scores = prefix_attention(scaled_queries(q), k, pack, padding_mask=padding_mask)
    unpack = unpack_weights(scores, packed_padding_mask)
    y = prefix_attention(dropout(unpack), pack, v, padding_mask=padding_mask)
    return y.to(q.dtype), unpack.to(q.dtype)


def scaled_queries(q: Tensor) -> Tensor:
    """``q / sqrt(D)``, in fp32 for a half precision ``q``: what is computed of it up to the outputs stays in fp32.

    A softmax in half precision, of scores that were rounded to it, is where most of the error of q's and k's gradients
    would come from.
    """
    return q.to(accumulation_dtype(q)) * q.shape[-1] ** -0.5


def pack_weights(pq: Tensor, pk: Tensor, activation: str) -> Tensor:
    """How much each step, of ``pk (B, H, T, D)``, gives to each slot, of ``pq (B, H, L, D)``: ``(B, H, T, L)``."""
    return pack_activation(activation)(pack_scores(pq, pk))


def pack_scores(pq: Tensor, pk: Tensor) -> Tensor:
    """``pq pk_t / sqrt(D)``: ``(B, H, T, L)``."""
    return pk @ (pq * pq.shape[-1] ** -0.5).transpose(-1, -2)


def unpack_weights(scores: Tensor, packed_padding_mask: Tensor | None) -> Tensor:
    """Softmax of ``scores (B, H, T, L)`` over the slots that are not padding: the same shape."""
    if packed_padding_mask is not None:
        scores = scores.masked_fill(packed_padding_mask[:, None, None, :], float("-inf"))
    return scores.softmax(-1)
