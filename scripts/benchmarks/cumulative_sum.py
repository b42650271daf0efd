"""Causal linear attention by a cumulative sum of every step's outer product, for comparison.

It is short and parallel, but its tensors have T x D x E elements per head.
"""

import torch
from torch import Tensor

from fairseq_luna.ops.luna_causal_attention.shared import pack_weights, unpack_weights


def prefix_attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """The function of :mod:`fairseq_luna.ops.prefix_attention.naive`, without padding."""
    states = (k[..., :, None] * v[..., None, :]).cumsum(2)
    steps = torch.arange(1, q.shape[2] + 1, device=q.device, dtype=q.dtype)
    return (q[..., None, :] @ states).squeeze(-2) / steps[:, None]


def luna_causal_attention(q: Tensor, k: Tensor, v: Tensor, pq: Tensor, pk: Tensor) -> tuple[Tensor, Tensor]:
    """The function of :mod:`fairseq_luna.ops.luna_causal_attention.naive` with softplus, without padding."""
    pack = pack_weights(pq, pk, "softplus")
    unpack = unpack_weights(prefix_attention(q * q.shape[-1] ** -0.5, k, pack), None)
    return prefix_attention(unpack, pack, v), unpack
