"""FLASH's mixed chunk attention: squared scores inside a chunk of steps, linear attention to the other chunks."""

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from .chunks import cut_into_blocks, join_blocks
from .dropout import drop
from .dtypes import accumulation_dtype, full_precision, running_sum
from .padding import Padding, PaddingLike
from .pattern_attention import PatternCache, with_step
from .prefix_attention import PrefixMean, prefix_mean_of, update_prefix_mean


def mixed_chunk_attention_reference(
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
    """Mixed chunk attention (arXiv 2202.10447, section 3.2), without the gate.

        y_i = sum over j in the chunk of i of relu( q_i . k_j / c + b_{i-j} )^2 v_j
              + (1/n) q'_i sum over j of k'_j v_j^T

    The second sum is over all n steps. Causal: the first is over j <= i, the second over the n steps of earlier chunks,
    and 0 in the first chunk. Chunks are cut, and steps are counted, without padding.

    Args:
        q, k: ``(B, H, T, S)``.
        far_q, far_k: q' and k', ``(B, H, T, S)``.
        v: ``(B, H, T, E)``.
        bias: b, by distance: causal ``(c,)`` from 0 on, otherwise ``(2 c - 1,)`` from 1 - c on.
        chunk_size: c.
        padding: ``(B, T)`` bool, True = padding, anywhere.
        causal: no step sees a later one.
        dropout_p: dropout probability of the weights in a chunk.

    Returns:
        ``(B, H, T, E)`` in the dtype of ``v``, zero at padding; squares and sums are in fp32 for half precision.
    """
    padding_mask = Padding.of(padding).mask
    dtype = accumulation_dtype(v)
    q, k, far_q, far_k, v_, bias = (x.to(dtype) for x in (q, k, far_q, far_k, v, bias))
    padded = Padding(padding_mask).with_mask(v.shape[0], v.shape[2], v.device).existing_mask
    p = Padding(padded).positions
    i, j = p[:, None, :, None], p[:, None, None, :]
    real = ~padded[:, None, None, :]
    near = real & (i // chunk_size == j // chunk_size)
    far = real.expand_as(near)
    if causal:
        near, far = near & (i >= j), real & (i // chunk_size > j // chunk_size)
    distance = (i - j) if causal else (i - j + chunk_size - 1)
    biases = bias[distance.clamp(0, len(bias) - 1)]
    weights = (q @ k.mT / chunk_size + biases).relu().square().masked_fill(~near, 0)
    far_weights = (far_q @ far_k.mT).masked_fill(~far, 0) / far.sum(-1, keepdim=True).clamp(min=1)
    y = (F.dropout(weights, dropout_p) + far_weights) @ v_.masked_fill(padded[:, None, :, None], 0)
    return y.masked_fill(padded[:, None, :, None], 0).to(v.dtype)


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
    """The same function as :func:`mixed_chunk_attention_reference`, linear in T, by products inside chunks.

    A mean of k' v^T, S x E, stands for all chunks, or causally for the chunks before each one: O(T c + T S E / c)
    memory if causal, otherwise O(T c + S E). Up to c steps all pairs of steps are multiplied.
    """
    padding = Padding.of(padding)
    dtype = accumulation_dtype(v)
    steps = max(1, v.shape[2])
    shape = (-(-steps // chunk_size), min(chunk_size, steps))

    def split_steps(x: Tensor) -> Tensor:
        return cut_into_blocks(padding.pack_left(x).to(dtype), *shape)

    with full_precision(v):
        values = split_steps(v)
        biases = _bias_of_pairs(bias.to(dtype), shape[1], chunk_size, causal)
        scores = torch.baddbmm(biases, split_steps(q), split_steps(k).mT, alpha=1 / chunk_size)
        if causal:
            scores = scores.tril()
        weights = drop(scores.relu().square(), dropout_p)
        together = shape[0] == 1 and not causal  # all pairs of so few steps cost less than the S x E mean
        if together:
            queries = split_steps(far_q.to(dtype) / _step_count(v, padding))
            weights = torch.baddbmm(weights, queries, split_steps(far_k).mT)
        y = torch.bmm(weights, values)
        if causal and shape[0] > 1:
            y = y + _earlier_chunks(split_steps(far_q), split_steps(far_k), values, shape)
        y = padding.restore_order(join_blocks(y, shape[0], like=v))
        if not causal and not together:
            y = y + far_q.to(dtype) @ prefix_mean_of(far_k, v, padding=padding).mean
    return padding.zero(y).to(v.dtype)


def _step_count(v: Tensor, padding: Padding) -> Tensor | int:
    """The number of real steps of ``v (B, H, T, E)``, at least 1: ``(B, 1, 1, 1)`` if there is padding."""
    if padding.mask is None:
        return v.shape[2]
    return padding.lengths.clamp(min=1)[:, None, None, None]


def _bias_of_pairs(bias: Tensor, steps: int, chunk_size: int, causal: bool) -> Tensor:
    """The bias of each pair of places in a chunk, ``(steps, steps)``; undefined for a later step that is not seen."""
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


class ChunkState(NamedTuple):
    """The state of generation: the latest N real steps; in a row with fewer, they are in its last places.

    The means take more memory than the keys of a short sentence. They are computed when the first chunk is full, and
    then N = c; until then all keys are kept. A recorded graph has no such branch: there all keys are kept to the end.
    """

    k: Tensor  # (B, H, N, S), the keys k; without means (B, H, N, 2 S), k and k'
    v: Tensor  # (B, H, N, E)
    steps: Tensor  # (B,), fp32 if the inputs are half precision: the number of real steps
    mean: Tensor | None = None  # (B, H, S, E), in that dtype: of k' v^T, over all of them
    complete: Tensor | None = None  # (B, H, S, E): over the steps of complete chunks, for far queries


def mixed_chunk_attention_step(
    q: Tensor,
    k: Tensor,
    far_q: Tensor,
    far_k: Tensor,
    v: Tensor,
    bias: Tensor,
    state: ChunkState | None,
    *,
    chunk_size: int,
    padding: PaddingLike = None,
    dropout_p: float = 0.0,
) -> tuple[Tensor, ChunkState]:
    """One step of causal :func:`mixed_chunk_attention_reference`: its arguments with T = 1; first the state is None.

    Returns:
        ``(B, H, 1, E)`` in the dtype of ``v``, zero at padding; and the state after this step.
    """
    padding = Padding.of(padding)
    dtype = accumulation_dtype(v)
    with full_precision(v):
        state = _with_step(state, k, far_k, v, padding, chunk_size)
        y = _attend_within_chunk(q.to(dtype), bias.to(dtype), state, chunk_size, dropout_p)
        if state.complete is not None:
            y = y + far_q.to(dtype) @ state.complete
        elif torch.compiler.is_compiling():
            y = y + _attend_to_earlier_chunks(far_q.to(dtype), state, chunk_size)
    return padding.zero(y).to(v.dtype), state


def allocate_chunk_state(state: ChunkState, key_size: int, chunk_size: int) -> ChunkState:
    """The same state with the places of one chunk and the means; no step changes its shape.

    ``key_size`` is S, the size of a key k.
    """
    if state.mean is not None:
        return state
    with full_precision(state.v):
        state = _with_means(state, key_size)
    free = max(0, chunk_size - state.v.shape[2])
    k, v = (F.pad(x, (0, 0, free, 0))[:, :, -chunk_size:] for x in (state.k, state.v))
    return state._replace(k=k, v=v)


def _attend_within_chunk(q: Tensor, bias: Tensor, state: ChunkState, chunk_size: int, dropout_p: float) -> Tensor:
    """The values of the newest step's chunk under the weights of its query ``q (B, H, 1, S)``: ``(B, H, 1, E)``."""
    places = state.v.shape[2]
    age = torch.arange(places - 1, -1, -1, device=q.device)
    scores = q @ state.k[..., : q.shape[-1]].to(q.dtype).mT / chunk_size + bias[age.clamp(max=chunk_size - 1)]
    hidden = age > (state.steps[:, None] - 1) % chunk_size
    weights = scores.relu().square().masked_fill(hidden[:, None, None], 0)
    return drop(weights, dropout_p) @ state.v.to(q.dtype)


def _attend_to_earlier_chunks(q: Tensor, state: ChunkState, chunk_size: int) -> Tensor:
    """The mean over complete chunks for the newest query ``q (B, H, 1, S)``, if all keys are kept: ``(B, H, 1, E)``."""
    age = torch.arange(state.v.shape[2] - 1, -1, -1, device=q.device)
    steps = state.steps[:, None]
    own_chunk = (steps - 1) % chunk_size + 1
    hidden = (age < own_chunk) | (age >= steps)
    scores = q @ state.k[..., q.shape[-1] :].to(q.dtype).mT / (steps - own_chunk).clamp(min=1)[:, None, None]
    return scores.masked_fill(hidden[:, None, None], 0) @ state.v.to(q.dtype)


def _with_step(
    state: ChunkState | None, k: Tensor, far_k: Tensor, v: Tensor, padding: Padding, chunk_size: int
) -> ChunkState:
    """The state after one more step; a padded step changes nothing that is seen."""
    if state is None:
        keys = torch.cat([k, far_k], dim=-1)
        state = ChunkState(keys[:, :, :0], v[:, :, :0], v.new_zeros(v.shape[0], dtype=accumulation_dtype(v)))
    elif state.mean is None and not torch.compiler.is_compiling() and state.v.shape[2] == chunk_size:
        state = _with_means(state, k.shape[-1])
    keys = torch.cat([k, far_k], dim=-1) if state.mean is None else k
    cache = with_step(PatternCache(state.k, state.v, None), keys, v, padding)
    if state.mean is None or state.complete is None:
        more = 1 if padding.mask is None else (~padding.mask[:, 0]).to(state.steps.dtype)
        return ChunkState(cache.k, cache.v, state.steps + more)
    is_first = (state.steps % chunk_size == 0)[:, None, None, None]
    complete = torch.where(is_first, state.mean, state.complete)
    before = PrefixMean(state.mean, state.steps)
    mean, steps = update_prefix_mean(far_k.to(state.mean.dtype), v, before, padding=padding)
    return ChunkState(cache.k[:, :, 1:], cache.v[:, :, 1:], steps, mean, complete)


def _with_means(state: ChunkState, size: int) -> ChunkState:
    """The means in place of the keys k', each of ``size`` numbers."""
    age = torch.arange(state.v.shape[2] - 1, -1, -1, device=state.v.device)
    far_k = state.k[..., size:]
    mean = prefix_mean_of(far_k, state.v, padding=age >= state.steps[:, None]).mean
    return state._replace(k=state.k[..., :size], mean=mean, complete=torch.zeros_like(mean))
