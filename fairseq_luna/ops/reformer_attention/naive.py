"""Specification: the whole T x T matrix of scores, with an explicit mask for each round of hashing."""

import torch
import torch.nn.functional as F
from torch import Tensor

from ..dtypes import accumulation_dtype
from ..padding import Padding, PaddingLike
from .shared import buckets


def reformer_attention(
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
        directions: ``(R, D, M)``; :func:`.shared.buckets` says how they are used.
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
