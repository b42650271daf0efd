"""Generation: one step at a time, from the steps of the open chunk and the means of k' v^T.

The means are larger than a short sentence. They are made when the first chunk is full; until then all keys are kept.
A recorded graph has no such branch: there all are kept to the end.
"""

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from ..dropout import drop
from ..dtypes import accumulation_dtype, full_precision
from ..padding import Padding, PaddingLike
from ..pattern_attention import Cache, with_step
from ..prefix_attention import PrefixMean, advance, prefix_mean_of


class ChunkState(NamedTuple):
    """The latest N real steps; in a row with fewer, its last places have them. With means N = c."""

    k: Tensor  # (B, H, N, S), the keys k; without means (B, H, N, 2 S), k and k'
    v: Tensor  # (B, H, N, E)
    steps: Tensor  # (B,), fp32 if the inputs are half precision: the number of real steps
    mean: Tensor | None = None  # (B, H, S, E), in that dtype: of k' v^T, over all of them
    complete: Tensor | None = None  # (B, H, S, E): over those of complete chunks; what far queries read


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
    """One step of causal :func:`.naive.mixed_chunk_attention`: its arguments with T = 1; first the state is None.

    Returns:
        ``(B, H, 1, E)`` in the dtype of ``v``, zero at padding; and the state after this step.
    """
    padding = Padding.of(padding)
    dtype = accumulation_dtype(v)
    with full_precision(v):
        state = _with_step(state, k, far_k, v, padding, chunk_size)
        y = _near(q.to(dtype), bias.to(dtype), state, chunk_size, dropout_p)
        if state.complete is not None:
            y = y + far_q.to(dtype) @ state.complete
        elif torch.compiler.is_compiling():
            y = y + _far(far_q.to(dtype), state, chunk_size)
    return padding.zero(y).to(v.dtype), state


def with_room(state: ChunkState, key_size: int, chunk_size: int) -> ChunkState:
    """The same state with the places of one chunk and the means, whose shapes no step changes.

    ``key_size`` is S, the numbers of a key k.
    """
    if state.mean is not None:
        return state
    with full_precision(state.v):
        state = _with_means(state, key_size)
    free = max(0, chunk_size - state.v.shape[2])
    k, v = (F.pad(x, (0, 0, free, 0))[:, :, -chunk_size:] for x in (state.k, state.v))
    return state._replace(k=k, v=v)


def _near(q: Tensor, bias: Tensor, state: ChunkState, chunk_size: int, dropout_p: float) -> Tensor:
    """What the newest step, whose query is ``q (B, H, 1, S)``, reads in its chunk: ``(B, H, 1, E)``."""
    places = state.v.shape[2]
    age = torch.arange(places - 1, -1, -1, device=q.device)
    scores = q @ state.k[..., : q.shape[-1]].to(q.dtype).mT / chunk_size + bias[age.clamp(max=chunk_size - 1)]
    hidden = age > (state.steps[:, None] - 1) % chunk_size
    weights = scores.relu().square().masked_fill(hidden[:, None, None], 0)
    return drop(weights, dropout_p) @ state.v.to(q.dtype)


def _far(q: Tensor, state: ChunkState, chunk_size: int) -> Tensor:
    """What the newest step, whose query is ``q (B, H, 1, S)``, reads of complete chunks that are all kept."""
    age = torch.arange(state.v.shape[2] - 1, -1, -1, device=q.device)
    steps = state.steps[:, None]
    of_chunk = (steps - 1) % chunk_size + 1
    hidden = (age < of_chunk) | (age >= steps)
    scores = q @ state.k[..., q.shape[-1] :].to(q.dtype).mT / (steps - of_chunk).clamp(min=1)[:, None, None]
    return scores.masked_fill(hidden[:, None, None], 0) @ state.v.to(q.dtype)


def _with_step(
    state: ChunkState | None, k: Tensor, far_k: Tensor, v: Tensor, padding: Padding, chunk_size: int
) -> ChunkState:
    """The state after one more step; where it is padding, nothing that is seen changes."""
    if state is None:
        keys = torch.cat([k, far_k], dim=-1)
        state = ChunkState(keys[:, :, :0], v[:, :, :0], v.new_zeros(v.shape[0], dtype=accumulation_dtype(v)))
    elif state.mean is None and not torch.compiler.is_compiling() and state.v.shape[2] == chunk_size:
        state = _with_means(state, k.shape[-1])
    keys = torch.cat([k, far_k], dim=-1) if state.mean is None else k
    cache = with_step(Cache(state.k, state.v, None), keys, v, padding)
    if state.mean is None or state.complete is None:
        more = 1 if padding.mask is None else (~padding.mask[:, 0]).to(state.steps.dtype)
        return ChunkState(cache.k, cache.v, state.steps + more)
    is_first = (state.steps % chunk_size == 0)[:, None, None, None]
    complete = torch.where(is_first, state.mean, state.complete)
    before = PrefixMean(state.mean, state.steps)
    mean, steps = advance(far_k.to(state.mean.dtype), v, before, padding=padding)
    return ChunkState(cache.k[:, :, 1:], cache.v[:, :, 1:], steps, mean, complete)


def _with_means(state: ChunkState, size: int) -> ChunkState:
    """The means in place of the keys k', of which each has ``size`` numbers."""
    age = torch.arange(state.v.shape[2] - 1, -1, -1, device=state.v.device)
    far_k = state.k[..., size:]
    mean = prefix_mean_of(far_k, state.v, padding=age >= state.steps[:, None]).mean
    return state._replace(k=state.k[..., :size], mean=mean, complete=torch.zeros_like(mean))
