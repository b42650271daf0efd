"""Training form: two prefix attentions in blocks of time."""

from typing import NamedTuple

import torch
from torch import Tensor

from ..dropout import drop
from ..dtypes import accumulation_dtype
from ..padding import Padding, PaddingLike, computed_once
from ..prefix_attention import step_weights, sums_and_states
from .shared import pack_activation, pack_scores, unpack_weights


def luna_causal_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    pq: Tensor,
    pk: Tensor,
    *,
    activation: str = "softplus",
    padding: PaddingLike = None,
    packed_padding: PaddingLike = None,
    dropout_p: float = 0.0,
) -> tuple[Tensor, Tensor]:
    """Luna's causal attention, linear in T in time and memory: a D x L state per block of steps, not per step.

    Args:
        q, k, v, pk: ``(B, H, T, D)``.
        pq: ``(B, H, L, D)``.
        activation, padding, packed_padding, dropout_p: as in :func:`.naive.luna_causal_attention`.

    Returns:
        As :func:`.naive.luna_causal_attention`: ``y (B, H, T, D)``, and the unpack weights ``(B, H, T, L)``.

    Raises:
        ValueError: if ``activation`` is unknown.
    """
    return luna_causal_attention_from_scores(
        q,
        k,
        v,
        pack_scores(pq, pk),
        activation=activation,
        padding=padding,
        packed_padding=packed_padding,
        dropout_p=dropout_p,
    )


def luna_causal_attention_from_scores(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    scores: Tensor,
    *,
    activation: str = "softplus",
    padding: PaddingLike = None,
    packed_padding: PaddingLike = None,
    dropout_p: float = 0.0,
) -> tuple[Tensor, Tensor]:
    """:func:`luna_causal_attention` with the pack scores ``(B, H, T, L)`` in place of ``pq`` and ``pk``."""
    dtype = accumulation_dtype(q)
    factors = step_factors(Padding.of(padding), *q.shape[2:], dtype, q.device)
    pack = drop(pack_activation(activation)(scores), dropout_p)
    pack = pack.to(dtype) if factors.pack is None else pack * factors.pack
    keys = k.to(dtype)
    slot_scores, states = sums_and_states(q * factors.query, keys, pack)
    unpack = unpack_weights(slot_scores, Padding.of(packed_padding).scores(dtype))
    weights = drop(unpack, dropout_p) * factors.unpack
    if k is v:  # what a slot's key is made of is what its value is made of
        y, _ = sums_and_states(weights, pack, keys, states=None if states is None else states.mT)
    else:
        y, _ = sums_and_states(weights, pack, v.to(dtype))
    return y.to(q.dtype), unpack


class StepFactors(NamedTuple):
    """What the tensors of the steps are multiplied by, the same in all layers: each ``(1 or B, 1, T, 1)``."""

    pack: Tensor | None  # 1, or 0 at padding: both sums contain the pack weights; None without padding
    query: Tensor  # 1 / (n_t sqrt(D))
    unpack: Tensor  # 1 / n_t


@computed_once
def step_factors(padding: Padding, steps: int, size: int, dtype: torch.dtype, device: torch.device) -> StepFactors:
    """The factors, in the dtype of the sums, to which they also convert half precision."""
    weights = step_weights(padding, steps, dtype, device)
    return StepFactors(pack=padding.real_factor(dtype), query=weights * size**-0.5, unpack=weights)
