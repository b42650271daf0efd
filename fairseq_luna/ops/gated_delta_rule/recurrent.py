"""Generation form: a state of constant size, one step at a time."""

from typing import NamedTuple

import torch
from torch import Tensor

from ..dtypes import accumulation_dtype, full_precision
from ..padding import Padding, PaddingLike
from .shared import inverse_norm


class DeltaState(NamedTuple):
    """What a key returns after the real steps so far: ``k^T S``."""

    memory: Tensor  # S, (B, H, D, E), fp32 if the inputs are half precision


def gated_delta_rule_step(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    log_decay: Tensor,
    beta: Tensor,
    state: DeltaState | None,
    *,
    padding: PaddingLike = None,
) -> tuple[Tensor, DeltaState]:
    """One step of :func:`.naive.gated_delta_rule`: its arguments with T = 1.

    Where the step is padding the state stays as it is; it is None before the first step.

    Returns:
        ``(B, H, 1, E)`` in the dtype of ``v``, and the state after this step.
    """
    padding = Padding.of(padding)
    out_dtype, dtype = v.dtype, accumulation_dtype(v)
    q, k, v, log_decay, beta = (x.to(dtype) for x in (q, k, v, log_decay, beta))
    log_decay, beta = (padding.zero(gate) for gate in (log_decay, beta))
    q, k = q * inverse_norm(q), k * inverse_norm(k)
    with full_precision(v):
        if state is None:
            memory = k.mT * (beta[..., None] * v)
        else:
            decayed = log_decay.exp()[..., None] * state.memory
            memory = torch.addcmul(decayed, k.mT, beta[..., None] * (v - k @ decayed))
        return (q @ memory).to(out_dtype), DeltaState(memory)
