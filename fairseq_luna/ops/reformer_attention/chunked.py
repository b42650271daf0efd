"""Training form: steps sorted by bucket and cut into chunks, so that a chunk and the one before it are one product."""

import torch
import torch.nn.functional as F
from torch import Tensor

from ..chunks import in_chunks
from ..dropout import drop
from ..dtypes import accumulation_dtype, full_precision
from ..padding import Padding, PaddingLike, additive_mask
from .shared import buckets

NO_BUCKET = -1


def reformer_attention(
    q: Tensor,
    v: Tensor,
    directions: Tensor,
    *,
    chunk_size: int,
    padding: PaddingLike = None,
    dropout_p: float = 0.0,
) -> Tensor:
    """Attention to the steps with the same hash, O(T log T); specified by :func:`.naive.reformer_attention`.

    Args:
        q, v: ``(B, H, T, D)``.
        directions: ``(R, D, M)``.
        chunk_size: steps of a chunk.
        padding: of the steps, anywhere: neither seen nor counted.
        dropout_p: dropout probability of the weights.

    Returns:
        ``(B, H, T, D)`` in the dtype of ``q``; zero at padding.
    """
    padding = Padding.of(padding)
    dtype, result_dtype = accumulation_dtype(q), q.dtype
    with full_precision(q):
        q, v = q.to(dtype), v.to(dtype)
        bucket = buckets(q, directions, chunk_size=chunk_size, padding=padding)
        bucket, order = bucket.sort(dim=-1, stable=True)
        chunks = _cut(order, chunk_size, fill=0)
        queries = _read(q[:, :, None], chunks)  # (B, H, R, chunks, chunk, D)
        seen = _with_the_chunk_before(chunks, fill=0)
        keys, values = _read(torch.cat([F.normalize(q, dim=-1), v], dim=-1)[:, :, None], seen).chunk(2, dim=-1)
        scores = (queries @ keys.mT).add_(_mask(_cut(bucket, chunk_size, fill=NO_BUCKET), q.dtype))
        # Numerators and denominators of each round, both divided by the exponential of its largest score.
        largest = scores.detach().amax(-1, keepdim=True)
        weights = (scores - largest).exp_()
        sums = torch.cat([drop(weights, dropout_p) @ values, weights.sum(-1, keepdim=True), largest], dim=-1)
        sums = _read(sums.flatten(3, 4), order.argsort(dim=-1))  # (B, H, R, T, D + 2)
        largest = sums[..., -1:].detach()
        mixed = (sums[..., :-1] * (largest - largest.amax(2, keepdim=True)).exp()).sum(2)
        y = (mixed[..., :-1] / mixed[..., -1:]).to(result_dtype)
    return padding.zero(y)


def _cut(x: Tensor, chunk_size: int, *, fill: int) -> Tensor:
    """``(B, H, R, T)`` to ``(B, H, R, chunks, chunk)``; ``fill`` behind T. A shorter sequence is one shorter chunk."""
    return in_chunks(x, max(1, min(chunk_size, x.shape[-1])), dim=-1, fill=fill)


def _with_the_chunk_before(x: Tensor, *, fill: int) -> Tensor:
    """``(B, H, R, chunks, chunk)`` to ``(B, H, R, chunks, 2 chunk)``, ``fill`` before the first. One chunk is left."""
    if x.shape[3] == 1:
        return x
    return torch.cat([F.pad(x, (0, 0, 1, 0), value=fill)[:, :, :, :-1], x], dim=-1)


def _read(x: Tensor, steps: Tensor) -> Tensor:
    """Steps of ``x (B, H, R or 1, N, E)``: ``(*steps.shape, E)`` for ``steps (B, H, R, ...)``."""
    batch, heads, rounds, length, size = x.shape
    starts = torch.arange(batch * heads * rounds, device=x.device) * length
    rows = steps + starts.view(batch, heads, rounds, *[1] * (steps.dim() - 3))
    return x.reshape(-1, size).index_select(0, rows.flatten()).view(*rows.shape, size)


def _mask(bucket: Tensor, dtype: torch.dtype) -> Tensor:
    """What is added to the scores, for ``bucket (B, H, R, chunks, chunk)``: -inf in other buckets.

    A step itself gets the least finite number: its weight is 0 unless it is alone.
    """
    hidden = bucket[..., None] != _with_the_chunk_before(bucket, fill=NO_BUCKET)[..., None, :]
    mask = additive_mask(hidden, dtype)
    itself = torch.eye(bucket.shape[-1], dtype=torch.bool, device=bucket.device)
    mask[..., -bucket.shape[-1] :].masked_fill_(itself, torch.finfo(dtype).min)
    return mask
