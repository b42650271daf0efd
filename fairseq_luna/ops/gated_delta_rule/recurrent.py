"""Generation form: a state of constant size, one step at a time."""

from typing import NamedTuple

import torch
from torch import Tensor

from ..dtypes import accumulation_dtype, full_precision
from .shared import inverse_norm, without_padding


class DeltaState(NamedTuple):
    """What a key returns after the real steps so far: ``k^T S``."""

    memory: Tensor  # S, (B, H, D, E), fp32 if the inputs are half precision


def initial_delta_state(k: Tensor, v: Tensor) -> DeltaState:
    """The state before the first step, for keys ``k (B, H, any T, D)`` and values ``v (B, H, any T, E)``."""
    return DeltaState(v.new_zeros(*k.shape[:2], k.shape[-1], v.shape[-1], dtype=accumulation_dtype(v)))


def gated_delta_rule_step(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    log_decay: Tensor,
    beta: Tensor,
    state: DeltaState,
    *,
    padding_mask: Tensor | None = None,
) -> tuple[Tensor, DeltaState]:
    """One or more steps of :func:`.naive.gated_delta_rule`, continued from ``state``.

    Args:
        q, k: ``(B, H, T, D)``, usually T = 1.
        v: ``(B, H, T, E)``.
        log_decay, beta: ``(B, H, T)``.
        state: after the previous steps.
        padding_mask: ``(B, T)`` bool, True = padding: the state stays as it is.

    Returns:
        ``(B, H, T, E)`` in the dtype of ``v``, and the state after these steps.
    """
    memory, out_dtype = state.memory, v.dtype
    q, k, v, log_decay, beta = (x.to(memory.dtype) for x in (q, k, v, log_decay, beta))
    log_decay, beta = without_padding(padding_mask, log_decay, beta)
    q, k, decay, beta = q * inverse_norm(q), k * inverse_norm(k), log_decay.exp()[..., None], beta[..., None]
    outputs = []
    with full_precision(v):
        for t in range(v.shape[2]):
            step = slice(t, t + 1)
            key, memory = k[:, :, step], decay[:, :, step] * memory
            written = beta[:, :, step] * (v[:, :, step] - key @ memory)
            memory = torch.addcmul(memory, key.mT, written)
            outputs.append(q[:, :, step] @ memory)
    out = outputs[0] if len(outputs) == 1 else torch.cat([v[:, :, :0], *outputs], dim=2)
    return out.to(out_dtype), DeltaState(memory)
