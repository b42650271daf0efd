"""Training form: matrix products inside blocks of time, and a D x E state between them that decays."""

import torch
import torch.nn.functional as F
from torch import Tensor

from ..dtypes import accumulation_dtype, full_precision
from ..prefix_attention.chunked import default_block_length

# Their states are summed with one product, by a matrix of their decays; longer sequences go through groups of them.
MOST_BLOCKS_SUMMED_AT_ONCE = 128


def decay_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    log_decay: Tensor,
    *,
    padding_mask: Tensor | None = None,
    causal: bool = True,
    block_length: int | None = None,
) -> Tensor:
    """Linear attention that forgets, linear in T; specified by :func:`.naive.decay_attention`.

    Args:
        q, k: ``(B, H, T, D)``.
        v: ``(B, H, T, E)``.
        log_decay: g, at most 0: ``(B, H, T)``, or broadcastable to it.
        padding_mask: ``(B, T)`` bool, True = padding, anywhere; None = no padding.
        causal: no step sees a later one.
        block_length: C, the most steps in a block; None chooses it by shape. It affects cost, not the result.

    Returns:
        ``(B, H, T, E)`` in the dtype of ``q``; summed in fp32 if ``q`` is half precision, also under autocast.
    """
    dtype = accumulation_dtype(q)
    g = log_decay.to(dtype).expand(q.shape[:3])
    if padding_mask is not None:
        g = g.masked_fill(padding_mask[:, None], 0)
        k = k.masked_fill(padding_mask[:, None, :, None], 0)
    queries, keys, values = (x.to(dtype) for x in (q, k, v))
    with full_precision(q):
        out = decayed_sums(queries, keys, values, g, block_length)
        if not causal:
            # Backwards, the decay of a step is that of the step after it, and this step counts only once.
            after = F.pad(g[..., 1:], (0, 1))
            *flipped, after = queries.flip(2), keys.flip(2), values.flip(2), after.flip(2)
            out = out + decayed_sums(*flipped, after, block_length).flip(2)
            out = out - (queries * keys).sum(-1, keepdim=True) * values
    return out.to(q.dtype)


def decayed_sums(q: Tensor, k: Tensor, v: Tensor, g: Tensor, block_length: int | None) -> Tensor:
    """``q_t`` times the decayed sum of ``k_j v_j^T`` over ``j <= t``, all in fp32 or fp64."""
    batch, heads, steps, _ = q.shape
    blocks = max(1, -(-steps // (block_length or default_block_length(k.shape[-1], v.shape[-1]))))
    length = -(-steps // blocks)
    q, k, v, g = (_cut(x, blocks, length) for x in (q, k, v, g[..., None]))
    total = g.cumsum(2)
    weights = (total - total.mT).clamp(max=0).exp().tril()
    out = (q @ k.mT * weights) @ v
    if blocks > 1:
        of_block = total[:, :, -1:]
        states = (k * (of_block - total).exp()).mT @ v
        out = out + (q * total.exp()) @ _earlier(states, of_block[:, :, 0])
    return out.view(batch, heads, blocks * length, -1)[:, :, :steps]


def _earlier(states: Tensor, decays: Tensor) -> Tensor:
    """For each block, the decayed sum of the ``states (N, blocks, D, E)`` before it; ``decays (N, blocks, 1)``."""
    sums, before = [], torch.zeros_like(states[:, :1])
    for own, decay in zip(*(x.split(MOST_BLOCKS_SUMMED_AT_ONCE, dim=1) for x in (states, decays)), strict=True):
        total = decay.cumsum(1)
        until = F.pad(total, (0, 0, 1, 0))  # before each block, and after the last
        weights = (until - total.mT).clamp(max=0).exp().tril(-1)
        found = (weights @ own.flatten(2)).view(len(own), -1, *own.shape[2:]) + until.exp()[..., None] * before
        sums.append(found[:, :-1])
        before = found[:, -1:]
    return torch.cat(sums, dim=1)


def _cut(x: Tensor, blocks: int, length: int) -> Tensor:
    """``(B, H, T, D)`` to ``(B H, blocks, C, D)``; the last block is padded with zeros."""
    missing = blocks * length - x.shape[2]
    if missing:
        x = F.pad(x, (0, 0, 0, missing))
    return x.reshape(x.shape[0] * x.shape[1], blocks, length, x.shape[-1])
