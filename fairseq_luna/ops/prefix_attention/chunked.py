"""Training form: matrix products inside blocks of time, a running D x E state between them."""

import torch
from torch import Tensor

from ..chunks import block_count, cut, joined
from ..dtypes import accumulation_dtype
from ..padding import Padding, PaddingLike, computed_once
from .sums import PrefixSums


def prefix_attention(
    q: Tensor, k: Tensor, v: Tensor, *, padding: PaddingLike = None, block_length: int | None = None
) -> Tensor:
    """Causal linear attention as a running mean; specified by :func:`.naive.prefix_attention`.

    With blocks of C steps it takes O(T C + T D E / C) memory; one state per step would take O(T D E).

    Args:
        q, k: ``(B, H, T, D)``.
        v: ``(B, H, T, E)``.
        padding: of the steps.
        block_length: C, the most steps in a block; None chooses it by shape. It affects cost, not the result.

    Returns:
        ``(B, H, T, E)`` in the dtype of ``q``; summed in fp32 if ``q`` is half precision, also under autocast.
    """
    padding = Padding.of(padding)
    dtype = accumulation_dtype(q)
    weight = step_weights(padding, q.shape[2], dtype, q.device)
    k = padding.zero(k)
    return sums_and_states(q * weight, k.to(dtype), v.to(dtype), block_length=block_length)[0].to(q.dtype)


def sums_and_states(
    q: Tensor, k: Tensor, v: Tensor, *, states: Tensor | None = None, block_length: int | None = None
) -> tuple[Tensor, Tensor | None]:
    """``q_t`` times the sum over ``j <= t`` of ``k_j v_j^T``; :func:`prefix_attention` if ``q`` is weighted.

    Args:
        q: ``(B, H, T, D)``, fp32 or fp64, times :func:`step_weights`.
        k: ``(B, H, T, D)`` of the same dtype, 0 at padding; ``v`` may be 0 there instead.
        v: ``(B, H, T, E)`` of the same dtype.
        states: the transposed states of the call with ``v`` in place of ``k`` and ``k`` of ``v``, which are those of
            this one; None computes them.
        block_length: as for :func:`prefix_attention`.

    Returns:
        ``(B, H, T, E)``, and the states before each block, or None if there is one block.
    """
    blocks = block_count(k, v, block_length)
    total, _, earlier = PrefixSums.apply(*(cut(x, blocks) for x in (q, k, v)), states, blocks)
    return joined(total, blocks, q), earlier


@computed_once
def step_counts(padding: Padding, steps: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    """The number of real steps up to each step, at least 1: ``(1 or B, 1, T, 1)``."""
    if padding.mask is None:
        return torch.arange(1, steps + 1, device=device, dtype=dtype).view(1, 1, steps, 1)
    return padding.counts.clamp(min=1).to(dtype)[:, None, :, None]


@computed_once
def step_weights(padding: Padding, steps: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    """1 / :func:`step_counts`."""
    return step_counts(padding, steps, dtype, device).reciprocal()
