"""Training form: products inside chunks, and one S x E mean for all of them, or before each of them."""

import torch
import torch.nn.functional as F
from torch import Tensor

from ..chunks import cut, joined
from ..dropout import drop
from ..dtypes import accumulation_dtype, full_precision, running_sum
from ..padding import Padding, PaddingLike, read_steps
from ..prefix_attention import prefix_mean_of


def mixed_chunk_attention(
    q: Tensor,
    k: Tensor,
    far_q: Tensor,
    far_k: Tensor,
    v: Tensor,
    bias: Tensor,
    *,
    chunk_size: int,
    padding: PaddingLike = None,
    causal: bool = False,
    dropout_p: float = 0.0,
) -> Tensor:
    """Mixed chunk attention, linear in T; specified by :func:`.naive.mixed_chunk_attention`.

    It takes O(T c + T S E / c) memory if causal, otherwise O(T c + S E). Up to c steps, all pairs are multiplied.

    Args:
        q, k, far_q, far_k: ``(B, H, T, S)``.
        v: ``(B, H, T, E)``.
        bias: ``(c,)`` if causal, otherwise ``(2 c - 1,)``.
        chunk_size: c.
        padding: of the steps, anywhere.
        causal: without the later steps.
        dropout_p: dropout probability of the weights in a chunk.

    Returns:
        ``(B, H, T, E)`` in the dtype of ``v``; zero at padding.
    """
    padding = Padding.of(padding)
    dtype = accumulation_dtype(v)
    steps = max(1, v.shape[2])
    shape = (-(-steps // chunk_size), min(chunk_size, steps))

    def in_chunks(x: Tensor) -> Tensor:
        return cut(padding.pack_left(x).to(dtype), *shape)

    with full_precision(v):
        values = in_chunks(v)
        biases = _bias_of_pairs(bias.to(dtype), shape[1], chunk_size, causal)
        scores = torch.baddbmm(biases, in_chunks(q), in_chunks(k).mT, alpha=1 / chunk_size)
        if causal:
            scores = scores.tril()
        weights = drop(scores.relu().square(), dropout_p)
        together = shape[0] == 1 and not causal  # less than the S x E mean for as few steps
        if together:
            queries = in_chunks(far_q.to(dtype) / _step_count(v, padding))
            weights = torch.baddbmm(weights, queries, in_chunks(far_k).mT)
        y = torch.bmm(weights, values)
        if causal and shape[0] > 1:
            y = y + _earlier_chunks(in_chunks(far_q), in_chunks(far_k), values, shape)
        y = joined(y, shape[0], like=v)
        if padding.mask is not None:
            y = read_steps(y, padding.positions)
        if not causal and not together:
            y = y + far_q.to(dtype) @ prefix_mean_of(far_k, v, padding=padding).mean
    return padding.zero(y).to(v.dtype)


def _step_count(v: Tensor, padding: Padding) -> Tensor | int:
    """The number of real steps of ``v (B, H, T, E)``, at least 1: ``(B, 1, 1, 1)`` if there is padding."""
    if padding.mask is None:
        return v.shape[2]
    return padding.lengths.clamp(min=1)[:, None, None, None]


def _bias_of_pairs(bias: Tensor, steps: int, chunk_size: int, causal: bool) -> Tensor:
    """The bias of each pair of places in a chunk, ``(steps, steps)``; undefined where a later one is not seen."""
    place = torch.arange(steps, device=bias.device)
    distance = place[:, None] - place
    index = distance.clamp(min=0) if causal else distance + chunk_size - 1
    return bias.index_select(0, index.flatten()).view(steps, steps)


def _earlier_chunks(q: Tensor, k: Tensor, v: Tensor, shape: tuple[int, int]) -> Tensor:
    """``q`` times the mean of ``k_j v_j^T`` over earlier chunks, which are full: ``(B H chunks, c, E)``."""
    chunks, size = shape
    means = torch.bmm(k.mT / size, v).unflatten(0, (-1, chunks))
    sums = F.pad(running_sum(means[:, :-1], 1), (0, 0, 0, 0, 1, 0))
    number = torch.arange(chunks, device=q.device).clamp(min=1).to(q.dtype)
    return torch.bmm((q.unflatten(0, (-1, chunks)) / number[:, None, None]).flatten(0, 1), sums.flatten(0, 1))
