"""Hashing by random directions."""

import torch
from torch import Tensor

from ..padding import Padding, PaddingLike


def buckets(q: Tensor, directions: Tensor, *, chunk_size: int, padding: PaddingLike) -> Tensor:
    """The bucket of each step in each round: ``argmax [q R; -q R]`` (arXiv 2001.04451, section 2).

    A sentence of n real steps uses the first ``n / (2 chunk_size)`` directions, rounded up, at least 1 and at most M:
    then a bucket has ``chunk_size`` steps on average, and more in sentences of more than ``2 chunk_size M`` steps.

    Args:
        q: ``(B, H, T, D)``; the gradient stops here.
        directions: ``(R, D, M)``, of R rounds.
        chunk_size: steps of a chunk.
        padding: of the steps.

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
