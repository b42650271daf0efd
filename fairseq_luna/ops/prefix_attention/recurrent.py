"""Generation form: a state of constant size, one step at a time."""

from typing import NamedTuple

import torch
from torch import Tensor

from ..dtypes import accumulation_dtype, full_precision
from ..padding import Padding, PaddingLike

STEPS_SUMMED_AT_ONCE = 4096


class PrefixMean(NamedTuple):
    """The mean of ``k_j v_j^T`` over the real steps so far."""

    mean: Tensor  # (B, H, D, E), fp32 if the inputs are half precision
    steps: Tensor  # (B,), in the same dtype: the number of these steps


def initial_prefix_mean(k: Tensor, v: Tensor) -> PrefixMean:
    """The state before the first step, for keys ``k (B, H, any T, D)`` and values ``v (B, H, any T, E)``."""
    batch, heads = k.shape[:2]
    dtype = accumulation_dtype(k)
    return PrefixMean(
        mean=k.new_zeros(batch, heads, k.shape[-1], v.shape[-1], dtype=dtype),
        steps=k.new_zeros(batch, dtype=dtype),
    )


def prefix_mean_of(k: Tensor, v: Tensor, *, padding: PaddingLike = None) -> PrefixMean:
    """The state after all of ``k (B, H, T, D)`` and ``v (B, H, T, E)``."""
    padding = Padding.of(padding)
    batch, _, steps, _ = k.shape
    dtype = accumulation_dtype(k)
    k, v = padding.zero(k.to(dtype)), v.to(dtype)
    real_steps = k.new_full((batch,), steps) if padding.mask is None else padding.lengths.to(dtype)
    weight = real_steps.clamp(min=1).reciprocal().view(batch, 1, 1, 1)
    with full_precision(k):
        return PrefixMean(mean=_sum_of_products(k * weight, v), steps=real_steps)


def _sum_of_products(k: Tensor, v: Tensor) -> Tensor:
    """The sum over time of ``k_j v_j^T``: ``(B, H, D, E)``.

    Some CPU libraries add the products of a narrow matrix one after another, with an error of 1.3e-5 in fp32 after
    100,000 steps: long sequences are therefore summed in parts.
    """
    parts = 1 if torch.compiler.is_compiling() else k.shape[2] // STEPS_SUMMED_AT_ONCE
    if parts < 2:
        return k.mT @ v
    whole = parts * STEPS_SUMMED_AT_ONCE
    k_parts, v_parts = (x[:, :, :whole].unflatten(2, (parts, STEPS_SUMMED_AT_ONCE)) for x in (k, v))
    return (k_parts.mT @ v_parts).sum(2) + k[:, :, whole:].mT @ v[:, :, whole:]


def advance(k: Tensor, v: Tensor, state: PrefixMean, *, padding: PaddingLike = None) -> PrefixMean:
    """One step of :func:`.naive.prefix_attention`; its output is ``q @ mean`` of the new state.

    Args:
        k: ``(B, H, 1, D)``, in the dtype of the mean.
        v: ``(B, H, 1, E)``, which may be half precision.
        state: the state after the previous steps.
        padding: of the step: the row stays as it is.
    """
    padding = Padding.of(padding)
    if padding.mask is None:
        steps = state.steps + 1
        weight = steps.reciprocal()
    else:
        padded = padding.mask[:, 0]
        steps = state.steps + (~padded).to(state.steps.dtype)
        weight = steps.clamp(min=1).reciprocal().masked_fill(padded, 0)
    mean = torch.lerp(state.mean, k.transpose(-1, -2) * v, weight.view(-1, 1, 1, 1))
    return PrefixMean(mean=mean, steps=steps)
