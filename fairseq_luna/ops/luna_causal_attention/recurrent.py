"""Generation form: O(L D) work and state per step."""

from typing import NamedTuple

from torch import Tensor

from ..dropout import drop
from ..prefix_attention import PrefixMean, initial_prefix_mean, prefix_attention_step, prefix_mean_of
from .shared import pack_weights, scaled_queries, unpack_weights


class LunaCausalState(NamedTuple):
    """The projected slots, and two running means in fp32 if the inputs are half precision."""

    pq: Tensor  # (B, H, L, D), constant
    keys: Tensor  # (B, H, D, L), the running mean of k_j A_j^T
    values: Tensor  # (B, H, L, D), the running mean of A_j v_j^T
    steps: Tensor  # (B,), the number of real steps so far


def initial_state(pq: Tensor) -> LunaCausalState:
    """The state before the first step, for packed slots ``pq (B, H, L, D)``."""
    slots_last = pq.transpose(-1, -2)
    keys, steps = initial_prefix_mean(pq, slots_last)
    values = initial_prefix_mean(slots_last, pq).mean
    return LunaCausalState(pq=pq, keys=keys, values=values, steps=steps)


def state_after(
    k: Tensor,
    v: Tensor,
    pq: Tensor,
    pk: Tensor,
    *,
    activation: str = "softplus",
    padding_mask: Tensor | None = None,
) -> LunaCausalState:
    """The state after a sequence whose outputs are not needed; shapes as in :mod:`.naive`."""
    pack = pack_weights(pq, pk, activation)
    keys, steps = prefix_mean_of(k, pack, padding_mask=padding_mask)
    values = prefix_mean_of(pack, v, padding_mask=padding_mask).mean
    return LunaCausalState(pq=pq, keys=keys, values=values, steps=steps)


def luna_causal_attention_step(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    pk: Tensor,
    state: LunaCausalState,
    *,
    activation: str = "softplus",
    padding_mask: Tensor | None = None,
    packed_padding_mask: Tensor | None = None,
    dropout_p: float = 0.0,
) -> tuple[Tensor, Tensor, LunaCausalState]:
    """One or more steps of :func:`.naive.luna_causal_attention`, continued from ``state``.

    Args:
        q, k, v, pk: ``(B, H, T, D)``, usually T = 1.
        state: the state after the previous steps.
        activation, padding_mask, packed_padding_mask, dropout_p: as in :mod:`.naive`.

    Returns:
        ``y (B, H, T, D)``, the unpack weights ``(B, H, T, L)``, and the state after these steps.
    """
    pack = drop(pack_weights(state.pq, pk, activation), dropout_p)
    scores, (keys, steps) = prefix_attention_step(
        scaled_queries(q), k, pack, PrefixMean(state.keys, state.steps), padding_mask=padding_mask
    )
    unpack = unpack_weights(scores, packed_padding_mask)
    y, (values, _) = prefix_attention_step(
        drop(unpack, dropout_p), pack, v, PrefixMean(state.values, state.steps), padding_mask=padding_mask
    )
    return y.to(q.dtype), unpack.to(q.dtype), LunaCausalState(pq=state.pq, keys=keys, values=values, steps=steps)
