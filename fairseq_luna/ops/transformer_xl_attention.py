"""Transformer-XL's attention: segments with a memory of earlier steps, and relative positions."""

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from .chunks import split_into_chunks
from .dropout import drop
from .dtypes import accumulation_dtype, full_precision
from .masked_softmax import masked_softmax
from .padding import Padding, PaddingLike, computed_once


def transformer_xl_attention_reference(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    memory_k: Tensor,
    memory_v: Tensor,
    content_bias: Tensor,
    position_bias: Tensor,
    position_weight: Tensor,
    *,
    segment: int,
    memory: int,
    padding: PaddingLike = None,
    causal: bool = False,
    dropout_p: float = 0.0,
) -> Tensor:
    """Attention to a step's segment and to the steps before it, by content and distance (arXiv 1901.02860, section 3).

    Positions are cut into segments of N; the memory of a segment is the M positions before it::

        s_ij = ((q_i + a) k_j + (q_i + b) W r(i - j)) / sqrt(D)
        r(d) = [sin(d w), cos(d w)], w_c = 10000^(-2c/C)
        y_i = softmax over the steps j of i's segment and of its memory of s_ij, times v_j

    a and b are the paper's u and v, ``content_bias`` and ``position_bias``. The paper stops the gradient of what keys
    and values of the memory are projected from, but not the projections' gradient. So they are arguments of their own,
    with the same numbers as ``k`` and ``v``.

    Args:
        q, k, v: ``(B, H, T, D)``.
        memory_k, memory_v: ``(B, H, T, D)``: keys and values of the steps where they are in a memory.
        content_bias, position_bias: ``(H, D)``.
        position_weight: W, ``(H, D, C)``.
        segment: N, steps of a segment.
        memory: M, steps of the memory; 0 or more.
        padding: ``(B, T)`` bool, True = padding, anywhere: neither seen nor counted.
        causal: without the later steps of the segment.
        dropout_p: dropout probability of the weights.

    Returns:
        ``(B, H, T, D)`` in the dtype of ``q``; zero at padding. Scores and softmax are in fp32 for half precision.
    """
    padding_mask, dtype = Padding.of(padding).mask, accumulation_dtype(q)
    result_dtype = q.dtype
    q, k, v, memory_k, memory_v, content_bias, position_bias, position_weight = (
        x.to(dtype) for x in (q, k, v, memory_k, memory_v, content_bias, position_bias, position_weight)
    )
    padded = Padding(padding_mask).with_mask(q.shape[0], q.shape[2], q.device).existing_mask
    position = (~padded).cumsum(1) - 1
    i, j = position[:, None, :, None], position[:, None, None, :]
    start = i.div(segment, rounding_mode="floor") * segment
    own = (j >= start) & (j < start + segment)
    hidden = ~own & ~((j < start) & (j >= start - memory)) | padded[:, None, :, None] | padded[:, None, None, :]
    if causal:
        hidden = hidden | (j > i)
    distance_keys = torch.einsum("hdc,btsc->bhtsd", position_weight, sinusoids(i - j, position_weight)[:, 0])
    content = q + content_bias[:, None]
    scores = torch.where(own, content @ k.mT, content @ memory_k.mT)
    scores = scores + torch.einsum("bhtd,bhtsd->bhts", q + position_bias[:, None], distance_keys)
    weights = F.dropout(masked_softmax(scores * q.shape[-1] ** -0.5, hidden, dim=-1), dropout_p)
    return (weights.where(own, 0) @ v + weights.where(~own, 0) @ memory_v).to(result_dtype)


def sinusoids(distance: Tensor, position_weight: Tensor) -> Tensor:
    """``r(distance)`` for int64 of any shape, ``(..., C)`` for ``position_weight (H, D, C)`` and in its dtype."""
    channels = position_weight.shape[-1]
    rates = 10000 ** (-torch.arange(0, channels, 2, dtype=torch.float64, device=distance.device) / channels)
    angles = distance[..., None] * rates
    return torch.cat([angles.sin(), angles.cos()], dim=-1)[..., :channels].to(position_weight.dtype)


def transformer_xl_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    memory_k: Tensor,
    memory_v: Tensor,
    content_bias: Tensor,
    position_bias: Tensor,
    position_weight: Tensor,
    *,
    segment: int,
    memory: int,
    padding: PaddingLike = None,
    causal: bool = False,
    dropout_p: float = 0.0,
) -> Tensor:
    """The same function as :func:`transformer_xl_attention_reference`, with ``T (N + M)`` scores.

    A sequence of at most N steps has no memory: ``memory_k`` and ``memory_v`` are not read.
    """
    padding, dtype, result_dtype = Padding.of(padding), accumulation_dtype(q), q.dtype
    steps = q.shape[2]
    segment = max(1, min(segment, steps))
    memory = max(0, min(memory, (-(-steps // segment) - 1) * segment))
    q, k, v = (padding.put_real_first(x) for x in (q, k, v))
    if memory > 0:
        memory_k, memory_v = (padding.put_real_first(x) for x in (memory_k, memory_v))
    hidden = _hidden_keys(padding, segment, memory, steps, causal, q.device)
    with full_precision(q):
        q = split_into_chunks(q.to(dtype), segment, dim=-2) * q.shape[-1] ** -0.5
        scale = q.shape[-1] ** -0.5
        keys, values = (
            _with_memory(own.to(dtype), earlier.to(dtype), segment, memory)
            for own, earlier in ((k, memory_k), (v, memory_v))
        )
        content = q + content_bias.to(dtype)[:, None, None] * scale
        by_distance = q + position_bias.to(dtype)[:, None, None] * scale
        scores = content @ keys.mT + _distance_scores(by_distance, position_weight.to(dtype), memory, causal=causal)
        weights = drop(masked_softmax(scores, hidden, dim=-1), dropout_p)
        y = (weights @ values).flatten(2, 3)[:, :, :steps].to(result_dtype)
    return padding.restore_places(y)


def _with_memory(own: Tensor, earlier: Tensor, segment: int, memory: int) -> Tensor:
    """Keys or values of each segment, its memory before them: ``(B, H, T, D)`` to ``(B, H, S, M + N, D)``."""
    own = split_into_chunks(own, segment, dim=-2)
    if memory <= 0:
        return own
    last = (own.shape[2] - 1) * segment  # the first step of the last segment: the memory ends before it
    starts = F.pad(earlier[:, :, :last], (0, 0, memory, segment - 1))
    return torch.cat([starts.unfold(2, memory, segment).mT[:, :, : own.shape[2]], own], dim=3)


def _distance_scores(q: Tensor, position_weight: Tensor, memory: int, *, causal: bool) -> Tensor:
    """``q_i W r(i - j)`` for ``q (B, H, S, N, D)`` and the M + N steps j that a segment sees.

    All distances are multiplied with all queries. Then row i of the result is moved by i, without an index: the rows
    are laid end to end and cut again, one shorter. One distance more than needed fills the cut.
    """
    segment = q.shape[-2]
    least = -1 if causal else -segment
    distance = torch.arange(segment + memory - 1, least - 1, -1, device=q.device)
    keys = position_weight @ sinusoids(distance, position_weight).mT  # (H, D, L)
    # One product for all segments: with a dimension of segments torch would copy the keys for each.
    products = (q.flatten(2, 3) @ keys).unflatten(2, q.shape[2:4]).flatten(-2)
    width = len(distance) - 1
    moved = products[..., segment - 1 : segment - 1 + segment * width]
    return moved.unflatten(-1, (segment, width))[..., : segment + memory]


@computed_once
def _hidden_keys(padding: Padding, segment: int, memory: int, steps: int, causal: bool, device: torch.device) -> Tensor:
    """The keys of memory and segment that a step does not see: ``(B or 1, 1, S, N, M + N)`` bool."""
    starts = torch.arange(0, max(1, steps), segment, device=device)[:, None, None]
    i = starts + torch.arange(segment, device=device)[:, None]
    j = starts + torch.arange(-memory, segment, device=device)
    hidden = (j < 0) | (j > i) if causal else (j < 0).expand(-1, segment, -1)
    ends = torch.full((1,), steps, device=device) if padding.mask is None else padding.lengths
    return (hidden | (j >= ends[:, None, None, None]))[:, None]


class SegmentCache(NamedTuple):
    """The state of generation: keys and values of the latest N + M real steps, the newest in the last place."""

    k: Tensor  # (B, H, N + M, D)
    v: Tensor  # (B, H, N + M, D)
    steps: Tensor  # (B,) int64, the number of real steps


def transformer_xl_attention_step(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    content_bias: Tensor,
    position_bias: Tensor,
    position_weight: Tensor,
    cache: SegmentCache | None,
    *,
    segment: int,
    memory: int,
    padding: PaddingLike = None,
    dropout_p: float = 0.0,
) -> tuple[Tensor, SegmentCache]:
    """One step of causal :func:`transformer_xl_attention_reference`: its arguments with T = 1.

    The cache is None before the first step; its shape does not change.

    Returns:
        ``(B, H, 1, D)`` in the dtype of ``q``, zero at padding; and the cache after this step.
    """
    padding, dtype = Padding.of(padding), accumulation_dtype(q)
    places = segment + memory
    if cache is None:
        nothing = k.new_zeros(*k.shape[:2], places, k.shape[3])
        cache = SegmentCache(nothing, nothing, q.new_zeros(q.shape[0], dtype=torch.int64))
    cache = _with_newest(cache, k, v, padding)
    age = torch.arange(places - 1, -1, -1, device=q.device)
    i = cache.steps[:, None] - 1
    hidden = (age > i) | (age > torch.remainder(i, segment) + memory)  # (B, N + M)
    with full_precision(q):
        q = q.to(dtype)
        weight, scale = position_weight.to(dtype), q.shape[-1] ** -0.5
        # W is multiplied with the query, not with all distances.
        by_distance = (q + position_bias.to(dtype)[:, None]) @ weight @ sinusoids(age, weight).mT
        scores = ((q + content_bias.to(dtype)[:, None]) @ cache.k.to(dtype).mT + by_distance) * scale
        weights = drop(masked_softmax(scores, hidden[:, None, None], dim=-1), dropout_p)
        y = weights @ cache.v.to(dtype)
    return padding.zero(y.to(k.dtype)), cache


def _with_newest(cache: SegmentCache, k: Tensor, v: Tensor, padding: Padding) -> SegmentCache:
    """The cache with ``k`` and ``v (B, H, 1, D)`` after it, and without the oldest; a padded step changes nothing."""
    new_k, new_v = (torch.cat([old[:, :, 1:], new], dim=2) for old, new in ((cache.k, k), (cache.v, v)))
    if padding.mask is None:
        return SegmentCache(new_k, new_v, cache.steps + 1)
    at_padding = padding.mask[:, :, None, None]
    return SegmentCache(
        torch.where(at_padding, cache.k, new_k),
        torch.where(at_padding, cache.v, new_v),
        cache.steps + ~padding.mask[:, 0],
    )
