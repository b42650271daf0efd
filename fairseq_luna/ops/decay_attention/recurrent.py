"""Generation form: a state of constant size, one step at a time."""

from typing import NamedTuple

import torch
from torch import Tensor

from ..dtypes import accumulation_dtype, full_precision
from ..padding import Padding, PaddingLike


class DecayState(NamedTuple):
    """The decayed sum of ``k_j v_j^T`` over the real steps so far."""

    sum: Tensor  # (B, H, D, E), fp32 if the inputs are half precision


def decay_attention_step(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    log_decay: Tensor,
    state: DecayState | None,
    *,
    padding: PaddingLike = None,
) -> tuple[Tensor, DecayState]:
    """One step of causal :func:`.naive.decay_attention`: its arguments with T = 1.

    Where the step is padding the state stays as it is; it is None before the first step.

    Returns:
        ``(B, H, 1, E)`` in the dtype of ``q``, and the state after this step.
    """
    padding = Padding.of(padding)
    out_dtype, dtype = q.dtype, accumulation_dtype(k)
    q, k, v, log_decay = (x.to(dtype) for x in (q, k, v, log_decay))
    k, log_decay = padding.zero(k), padding.zero(log_decay)
    total = k.mT * v
    if state is not None:
        total = torch.addcmul(total, log_decay.exp()[..., None], state.sum)
    with full_precision(q):
        return (q @ total).to(out_dtype), DecayState(total)
