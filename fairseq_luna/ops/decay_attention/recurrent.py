"""Generation form: a state of constant size, one step at a time."""

from typing import NamedTuple

import torch
from torch import Tensor

from ..dtypes import accumulation_dtype, full_precision


class DecayState(NamedTuple):
    """The decayed sum of ``k_j v_j^T`` over the real steps so far."""

    sum: Tensor  # (B, H, D, E), fp32 if the inputs are half precision


def initial_decay_state(k: Tensor, v: Tensor) -> DecayState:
    """The state before the first step, for keys ``k (B, H, any T, D)`` and values ``v (B, H, any T, E)``."""
    return DecayState(k.new_zeros(*k.shape[:2], k.shape[-1], v.shape[-1], dtype=accumulation_dtype(k)))


def decay_attention_step(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    log_decay: Tensor,
    state: DecayState,
    *,
    padding_mask: Tensor | None = None,
) -> tuple[Tensor, DecayState]:
    """One or more steps of causal :func:`.naive.decay_attention`, continued from ``state``.

    Args:
        q, k: ``(B, H, T, D)``, usually T = 1.
        v: ``(B, H, T, E)``.
        log_decay: ``(B, H, T)``, or broadcastable to it.
        state: the sum over the steps before.
        padding_mask: ``(B, T)`` bool, True = padding: the state stays as it is.

    Returns:
        ``(B, H, T, E)`` in the dtype of ``q``, and the state after these steps.
    """
    total, out_dtype = state.sum, q.dtype
    q, k, v = (x.to(total.dtype) for x in (q, k, v))
    decay = log_decay.to(total.dtype).expand(q.shape[:3])
    if padding_mask is not None:
        decay = decay.masked_fill(padding_mask[:, None], 0)
        k = k.masked_fill(padding_mask[:, None, :, None], 0)
    decay = decay.exp()[..., None]
    outputs = []
    with full_precision(q):
        for t in range(q.shape[2]):
            step = slice(t, t + 1)
            total = torch.addcmul(k[:, :, step].mT * v[:, :, step], decay[:, :, step], total)
            outputs.append(q[:, :, step] @ total)
    out = outputs[0] if len(outputs) == 1 else torch.cat(outputs, dim=2)
    return out.to(out_dtype), DecayState(total)
