"""Generation form: O(L D) work and state per step.

The state is one running mean of ``A_j^T [k_j, v_j]``, whose first D columns are the keys of the slots and whose last D
are their values; with tied keys and values these are the same D columns.
"""

import torch
from torch import Tensor

from ..dropout import drop
from ..dtypes import full_precision
from ..padding import Padding, PaddingLike
from ..prefix_attention import PrefixMean, advance, initial_prefix_mean, prefix_mean_of
from .shared import pack_activation, unpack_weights


def initial_state(pq: Tensor, *, tied: bool) -> PrefixMean:
    """The state before the first step for slots ``pq (B, H, L, D)``; ``tied``: keys are values."""
    return initial_prefix_mean(pq.mT, side_by_side(pq, pq, tied=tied))


def state_after(
    k: Tensor,
    v: Tensor,
    scores: Tensor,
    *,
    tied: bool,
    activation: str = "softplus",
    padding: PaddingLike = None,
) -> PrefixMean:
    """The state after a sequence whose outputs are not needed; arguments as :func:`luna_causal_attention_step`'s."""
    pack = pack_activation(activation)(scores)
    return prefix_mean_of(pack, side_by_side(k, v, tied=tied), padding=padding)


def luna_causal_attention_step(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    scores: Tensor,
    state: PrefixMean,
    *,
    activation: str = "softplus",
    padding: PaddingLike = None,
    packed_padding: PaddingLike = None,
    dropout_p: float = 0.0,
) -> tuple[Tensor, Tensor, PrefixMean]:
    """One step of :func:`.naive.luna_causal_attention`.

    Args:
        scores: the pack scores ``(B, H, 1, L)``, see :func:`.shared.pack_scores`.
        state: the state after the previous steps, ``(B, H, L, D)`` for tied keys and values, otherwise
            ``(B, H, L, 2 D)``; in fp32 if the inputs are half precision.
        q, k, v, activation, padding, dropout_p: as in :mod:`.naive`, with T = 1.
        packed_padding: of the slots, with a row for each of ``q``.

    Returns:
        ``y (B, H, 1, D)``, the unpack weights ``(B, H, 1, L)`` in the dtype of the state, and the state after it.
    """
    size, dtype = q.shape[-1], state.mean.dtype
    pack = drop(pack_activation(activation)(scores), dropout_p).to(dtype)
    keys_and_values = side_by_side(k, v, tied=state.mean.shape[-1] == size)
    state = advance(pack, keys_and_values, state, padding=padding)
    keys, values = state.mean[..., :size], state.mean[..., -size:]
    with full_precision(q):
        unpack = unpack_weights(q.to(dtype) @ keys.mT, Padding.of(packed_padding).scores(dtype), scale=size**-0.5)
        y = drop(unpack, dropout_p) @ values
    return y.to(q.dtype), unpack, state


def side_by_side(k: Tensor, v: Tensor, *, tied: bool) -> Tensor:
    """``[k, v] (B, H, T, 2 D)``, or ``k`` alone if it is ``v``."""
    return k if tied else torch.cat([k, v], dim=-1)
