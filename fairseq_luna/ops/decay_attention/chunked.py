"""Training form: matrix products inside blocks of time, and a D x E state between them that decays."""

from torch import Tensor

from ..chunks import block_count, cut, joined
from ..dtypes import accumulation_dtype
from ..padding import Padding, PaddingLike
from .sums import DecayedSums, sums_of_later


def decay_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    log_decay: Tensor,
    *,
    padding: PaddingLike = None,
    causal: bool = True,
    block_length: int | None = None,
) -> Tensor:
    """Linear attention that forgets, linear in T; specified by :func:`.naive.decay_attention`.

    Args:
        q, k: ``(B, H, T, D)``.
        v: ``(B, H, T, E)``.
        log_decay: g, at most 0: ``(B, H, T)``, or broadcastable to it.
        padding: of the steps, anywhere.
        causal: no step sees a later one.
        block_length: C, the most steps in a block; None chooses it by shape. It affects cost, not the result.

    Returns:
        ``(B, H, T, E)`` in the dtype of ``q``; summed in fp32 if ``q`` is half precision, also under autocast.
    """
    padding = Padding.of(padding)
    dtype = accumulation_dtype(q)
    g = log_decay.to(dtype).expand(q.shape[:3])
    k, g = padding.zero(k), padding.zero(g)
    blocks = block_count(k, v, block_length)
    queries, keys, values, g = (cut(x.to(dtype), blocks) for x in (q, k, v, g[..., None]))
    out = DecayedSums.apply(queries, keys, values, g, blocks)[0]
    if not causal:
        own = (queries * keys).sum(-1, keepdim=True) * values  # which both have
        out = out + sums_of_later(queries, keys, values, g, blocks) - own
    return joined(out, blocks, q).to(q.dtype)
