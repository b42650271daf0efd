"""Reformer's attention: softmax attention to the steps with the same hash."""

import torch
import torch.nn.functional as F
from torch import Tensor

from .chunks import split_into_chunks
from .dropout import drop
from .dtypes import accumulation_dtype, full_precision
from .padding import Padding, PaddingLike, additive_mask


def reformer_attention_reference(
    q: Tensor,
    v: Tensor,
    directions: Tensor,
    *,
    chunk_size: int,
    padding: PaddingLike = None,
    dropout_p: float = 0.0,
) -> Tensor:
    """Attention to the steps with the same hash (Reformer, arXiv 2001.04451, section 2).

        k = q / |q|
        P_r(i): in the order of (bucket, position) of round r, the steps of the chunk of i and of the one before it
                that are in the bucket of i, without i itself
        y_i = sum over r and j in P_r(i) of exp(q_i k_j) v_j, divided by the same sum without v_j

    A step that is alone in all rounds sees itself. A step that is seen in several rounds counts as often, as in the
    authors' code by default; the appendix of the paper counts it once. Scores are not divided by sqrt(D), also as in
    their code: a key has length 1.

    Args:
        q, v: ``(B, H, T, D)``.
        directions: ``(R, D, M)``; :func:`buckets` says how they are used.
        chunk_size: steps of a chunk.
        padding: ``(B, T)`` bool, True = padding, anywhere: neither seen nor counted.
        dropout_p: dropout probability of the weights.

    Returns:
        ``(B, H, T, D)`` in the dtype of ``q``; zero at padding. Scores and softmax are in fp32 for half precision.
    """
    padding_mask = Padding.of(padding).mask
    dtype, steps = accumulation_dtype(q), q.shape[2]
    result_dtype, q, v = q.dtype, q.to(dtype), v.to(dtype)
    padded = Padding(padding_mask).with_mask(q.shape[0], steps, q.device).existing_mask
    itself = torch.eye(steps, dtype=torch.bool, device=q.device)
    counts = q.new_zeros(*q.shape[:2], steps, steps)  # the rounds in which i sees j
    for bucket in buckets(q, directions, chunk_size=chunk_size, padding=padding_mask).unbind(2):
        key = bucket * steps + Padding(padded).positions[:, None]
        place = (key[..., None, :] < key[..., None]).sum(-1)
        chunk = place // chunk_size
        before = chunk[..., None] - chunk[..., None, :]
        sees = (bucket[..., None] == bucket[..., None, :]) & ((before == 0) | (before == 1)) & ~itself
        counts = counts + (sees & ~padded[:, None, None])
    counts = counts + itself * (counts.sum(-1, keepdim=True) == 0)
    scores = q @ F.normalize(q, dim=-1).mT
    weights = F.dropout((scores + counts.log()).softmax(-1), dropout_p)
    return (weights @ v).masked_fill(padded[:, None, :, None], 0).to(result_dtype)


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
    """The same function as :func:`reformer_attention_reference`, O(T log T).

    Steps are sorted by bucket and cut into chunks, so that a chunk and the chunk before it are one product.
    """
    padding = Padding.of(padding)
    dtype, result_dtype = accumulation_dtype(q), q.dtype
    with full_precision(q):
        q, v = q.to(dtype), v.to(dtype)
        bucket = buckets(q, directions, chunk_size=chunk_size, padding=padding)
        bucket, order = bucket.sort(dim=-1, stable=True)
        chunks = _split_into_short_chunks(order, chunk_size, fill=0)
        queries = _gather_steps(q[:, :, None], chunks)  # (B, H, R, chunks, chunk, D)
        seen = _with_the_chunk_before(chunks, fill=0)
        keys, values = _gather_steps(torch.cat([F.normalize(q, dim=-1), v], dim=-1)[:, :, None], seen).chunk(2, dim=-1)
        scores = (queries @ keys.mT).add_(_mask(_split_into_short_chunks(bucket, chunk_size, fill=NO_BUCKET), q.dtype))
        # Numerators and denominators of each round, both divided by the exponential of its largest score.
        largest = scores.detach().amax(-1, keepdim=True)
        weights = (scores - largest).exp_()
        sums = torch.cat([drop(weights, dropout_p) @ values, weights.sum(-1, keepdim=True), largest], dim=-1)
        sums = _gather_steps(sums.flatten(3, 4), order.argsort(dim=-1))  # (B, H, R, T, D + 2)
        largest = sums[..., -1:].detach()
        mixed = (sums[..., :-1] * (largest - largest.amax(2, keepdim=True)).exp()).sum(2)
        y = (mixed[..., :-1] / mixed[..., -1:]).to(result_dtype)
    return padding.zero(y)


def _split_into_short_chunks(x: Tensor, chunk_size: int, *, fill: int) -> Tensor:
    """``(B, H, R, T)`` to ``(B, H, R, chunks, chunk)``; ``fill`` after T. A shorter sequence is one shorter chunk."""
    return split_into_chunks(x, max(1, min(chunk_size, x.shape[-1])), dim=-1, fill=fill)


def _with_the_chunk_before(x: Tensor, *, fill: int) -> Tensor:
    """``(B, H, R, chunks, chunk)`` to ``(B, H, R, chunks, 2 chunk)``, ``fill`` before the first; one chunk is kept."""
    if x.shape[3] == 1:
        return x
    return torch.cat([F.pad(x, (0, 0, 1, 0), value=fill)[:, :, :, :-1], x], dim=-1)


def _gather_steps(x: Tensor, steps: Tensor) -> Tensor:
    """The entries of ``x (B, H, R or 1, N, E)`` at ``steps (B, H, R, ...)``: ``(*steps.shape, E)``."""
    batch, heads, rounds, length, size = x.shape
    starts = torch.arange(batch * heads * rounds, device=x.device) * length
    rows = steps + starts.view(batch, heads, rounds, *[1] * (steps.dim() - 3))
    return x.reshape(-1, size).index_select(0, rows.flatten()).view(*rows.shape, size)


def _mask(bucket: Tensor, dtype: torch.dtype) -> Tensor:
    """The mask to add to the scores, for ``bucket (B, H, R, chunks, chunk)``: -inf in other buckets.

    A step itself gets the smallest finite number: its weight is 0 unless it is alone.
    """
    hidden = bucket[..., None] != _with_the_chunk_before(bucket, fill=NO_BUCKET)[..., None, :]
    mask = additive_mask(hidden, dtype)
    itself = torch.eye(bucket.shape[-1], dtype=torch.bool, device=bucket.device)
    mask[..., -bucket.shape[-1] :].masked_fill_(itself, torch.finfo(dtype).min)
    return mask


def buckets(q: Tensor, directions: Tensor, *, chunk_size: int, padding: PaddingLike) -> Tensor:
    """The bucket of each step in each round: ``argmax [q R; -q R]`` (arXiv 2001.04451, section 2).

    A sentence of n real steps uses the first ``n / (2 chunk_size)`` directions, rounded up, at least 1 and at most M:
    then a bucket has ``chunk_size`` steps on average, and more in sentences of more than ``2 chunk_size M`` steps.

    Args:
        q: ``(B, H, T, D)``; the gradient stops here.
        directions: ``(R, D, M)``, for R rounds.
        chunk_size: steps of a chunk.
        padding: ``(B, T)`` bool, True = padding.

    Returns:
        ``(B, H, R, T)`` int64; the bucket of padding is the largest number.
    """
    padding = Padding.of(padding)
    rounds, size, largest = directions.shape
    used = min(largest, max(1, -(-q.shape[2] // (2 * chunk_size))))
    flat = directions[:, :, :used].to(q.dtype).transpose(0, 1).reshape(size, rounds * used)
    along = (q.detach() @ flat).unflatten(-1, (rounds, used))
    if padding.mask is not None:
        counts = ((~padding.mask).sum(1) + 2 * chunk_size - 1) // (2 * chunk_size)
        unused = torch.arange(used, device=q.device) >= counts.clamp(min=1)[:, None]
        along = along.masked_fill(unused[:, None, None, None], 0)
    nearest = along.abs().argmax(-1, keepdim=True)
    bucket = (nearest + used * (along.gather(-1, nearest) < 0))[..., 0].transpose(2, 3)
    return bucket if padding.mask is None else bucket.masked_fill(padding.mask[:, None, None], 2 * used)
