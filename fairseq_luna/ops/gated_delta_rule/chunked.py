"""Training form: a triangular system in each block of time, and a D x E state between the blocks."""

from torch import Tensor

from ..chunks import cut, default_block_length, joined
from ..decay_attention.sums import some_heads_at_once
from ..dtypes import accumulation_dtype
from ..padding import Padding, PaddingLike
from .systems import GatedDelta


def gated_delta_rule(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    log_decay: Tensor,
    beta: Tensor,
    *,
    padding: PaddingLike = None,
    block_length: int | None = None,
) -> Tensor:
    """The gated delta rule, linear in T; specified by :func:`.naive.gated_delta_rule`.

    With blocks of C steps it takes O(T (C + D + E) + T D (D + E) / C) memory.

    Args:
        q, k: ``(B, H, T, D)``.
        v: ``(B, H, T, E)``.
        log_decay: g, at most 0: ``(B, H, T)``.
        beta: b, from 0 to 1: ``(B, H, T)``.
        padding: of the steps, anywhere.
        block_length: C, the most steps in a block; None chooses it by shape. It affects cost, not the result.

    Returns:
        ``(B, H, T, E)`` in the dtype of ``v``; summed in fp32 if ``v`` is half precision, also under autocast.
    """
    padding = Padding.of(padding)
    dtype = accumulation_dtype(v)
    gates = (padding.zero(gate.to(dtype)) for gate in (log_decay, beta))
    steps, sizes = v.shape[2], (k.shape[-1], v.shape[-1])
    length = block_length or default_block_length(steps, *sizes)
    # A power of two: a recorded graph, which goes through them one after the other, then holds for more lengths.
    blocks = 1
    while blocks * length < steps:
        blocks *= 2
    inputs = (cut(x, blocks) for x in (q.to(dtype), k.to(dtype), v.to(dtype), *(gate[..., None] for gate in gates)))
    (out,) = some_heads_at_once(lambda *given: GatedDelta.apply(*given)[:1], blocks, *inputs)
    return joined(out, blocks, v).to(v.dtype)
