"""Causal generation form: a state of constant size, one step at a time."""

from torch import Tensor

from ..dtypes import accumulation_dtype
from ..padding import PaddingLike
from ..prefix_attention import PrefixMean, advance, initial_prefix_mean
from .fused import read_kernel_mean
from .shared import with_ones


def kernel_causal_attention_step(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    state: PrefixMean | None,
    *,
    normaliser: str = "sum",
    padding: PaddingLike = None,
    dropout_p: float = 0.0,
) -> tuple[Tensor, PrefixMean]:
    """One step of :func:`.naive.kernel_causal_attention`: its arguments with T = 1.

    The state is the mean of ``k_j [v_j, 1]^T`` over the steps before, None before the first.

    Returns:
        ``(B, H, 1, E)`` in the dtype of ``v``, and the state after this step.
    """
    k = k.to(accumulation_dtype(k))
    values = with_ones(v, k.dtype, dropout_p)
    state = advance(k, values, state or initial_prefix_mean(k, values), padding=padding)
    return read_kernel_mean(q, state, normaliser=normaliser, causal=True).to(v.dtype), state
