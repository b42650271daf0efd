"""Generation: one step at a time, from a cache of keys and values."""

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from ..dropout import drop
from ..dtypes import accumulation_dtype, full_precision
from ..masked_softmax import masked_softmax
from ..padding import Padding, PaddingLike
from .fused import topk_attention
from .shared import Pattern, Strided, TopK, Window


class Cache(NamedTuple):
    """Keys and values of the latest N real steps; in a row with fewer, its last places have them.

    N grows with each step, for a :class:`.Window` up to its reach. For a :class:`.Strided` without padding, these are
    the steps of the own block, and of the M before it only those are kept that later steps see.
    """

    k: Tensor  # (B, H, N, D)
    v: Tensor  # (B, H, N, D)
    steps: Tensor | None  # (B,) int64, the number of real steps; None = at least N in all rows
    summary_k: Tensor | None = None  # (B, H, M * pattern.summary, D)
    summary_v: Tensor | None = None  # (B, H, M * pattern.summary, D)


def pattern_attention_step(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    pattern: Pattern,
    cache: Cache | None,
    *,
    padding: PaddingLike = None,
    dropout_p: float = 0.0,
) -> tuple[Tensor, Cache]:
    """One step of causal :func:`.naive.pattern_attention`: its arguments with T = 1.

    Not for a window with ``first``, which has left the cache. The cache is None before the first step.

    Returns:
        ``(B, H, 1, D)`` in the dtype of ``q``, zero at padding; and the cache after this step.
    """
    padding = Padding.of(padding)
    cache = cache or Cache(k[:, :, :0], v[:, :, :0], None)
    if isinstance(pattern, Strided):
        # Rows with padding reach the end of a block at different steps; a recorded graph has no branches.
        together = padding.mask is None and cache.steps is None and not torch.compiler.is_compiling()
        cache = _summarised(cache, pattern) if together else _all_places(cache, pattern)
    cache = with_step(cache, k, v, padding)
    y = _read(q, cache, pattern, dropout_p)
    if isinstance(pattern, Window):
        cache = cache._replace(k=_latest(cache.k, pattern.reach), v=_latest(cache.v, pattern.reach))
    return padding.zero(y), cache


def with_step(cache: Cache, k: Tensor, v: Tensor, padding: PaddingLike) -> Cache:
    """One more place, for ``k`` and ``v (B, H, 1, D)``: the last, or where it is ``padding`` the first."""
    padding = Padding.of(padding)
    if padding.mask is None:
        steps = None if cache.steps is None else cache.steps + 1
        return cache._replace(k=torch.cat([cache.k, k], dim=2), v=torch.cat([cache.v, v], dim=2), steps=steps)
    batch, _, places, _ = cache.k.shape
    before = torch.full((batch,), places, device=k.device) if cache.steps is None else cache.steps
    at_front = padding.mask[:, None, :, None]

    def put(old: Tensor, new: Tensor) -> Tensor:
        return torch.where(at_front, torch.cat([new, old], dim=2), torch.cat([old, new], dim=2))

    return Cache(put(cache.k, k), put(cache.v, v), before + ~padding.mask[:, 0])


def _latest(x: Tensor, count: int) -> Tensor:
    """The last ``count`` places of ``x (B, H, N, D)``, or all if there are fewer."""
    places = x.shape[2]
    if torch.compiler.is_compiling():  # a slice would fix in a graph whether there are fewer
        return x.index_select(2, torch.arange(places - torch.sym_min(count, places), places, device=x.device))
    return x[:, :, max(0, places - count) :]


def _summarised(cache: Cache, pattern: Strided) -> Cache:
    """The cache before a step that is not padded: of a block that is whole, what later steps see."""
    if cache.k.shape[2] < pattern.stride:
        return cache

    def extended(summary: Tensor | None, block: Tensor) -> Tensor:
        seen = block[:, :, pattern.stride - pattern.summary :]
        return seen if summary is None else torch.cat([summary, seen], dim=2)

    summaries = extended(cache.summary_k, cache.k), extended(cache.summary_v, cache.v)
    return Cache(cache.k[:, :, :0], cache.v[:, :, :0], None, *summaries)


def _all_places(cache: Cache, pattern: Strided) -> Cache:
    """The cache without summaries, with zeros at the steps that have left it."""

    def in_place(summary: Tensor, own: Tensor) -> Tensor:
        blocks = summary.unflatten(2, (-1, pattern.summary))
        return torch.cat([F.pad(blocks, (0, 0, pattern.stride - pattern.summary, 0)).flatten(2, 3), own], dim=2)

    if cache.summary_k is None or cache.summary_v is None:
        return cache
    return Cache(in_place(cache.summary_k, cache.k), in_place(cache.summary_v, cache.v), None)


def _read(q: Tensor, cache: Cache, pattern: Pattern, dropout_p: float) -> Tensor:
    """What the newest step, whose query is ``q (B, H, 1, D)``, reads: ``(B, H, 1, D)``."""
    if cache.summary_k is not None and cache.summary_v is not None:  # all that is kept is seen
        k, v = torch.cat([cache.summary_k, cache.k], dim=2), torch.cat([cache.summary_v, cache.v], dim=2)
        return _attend(q, k, v, None, None, dropout_p)
    places = cache.k.shape[2]
    age = torch.arange(places - 1, -1, -1, device=q.device)
    steps = torch.full((1,), places, device=q.device) if cache.steps is None else cache.steps
    i = steps[:, None] - 1
    hidden = (age > i) | ~pattern.sees(i, i - age, steps)  # (B or 1, N)
    if isinstance(pattern, TopK):
        hidden_or_none = None if cache.steps is None else hidden
        return topk_attention(q, cache.k, cache.v, count=pattern.count, padding=hidden_or_none, dropout_p=dropout_p)[0]
    soft = pattern.scores(age) if isinstance(pattern, Window) and pattern.spans is not None else None
    return _attend(q, cache.k, cache.v, hidden[:, None, None, :], soft, dropout_p)


def _attend(q: Tensor, k: Tensor, v: Tensor, hidden: Tensor | None, soft: Tensor | None, dropout_p: float) -> Tensor:
    """Attention of ``q (B, H, 1, D)`` to places that are not ``hidden``; ``soft (H, 1, N)`` is added to the scores."""
    dtype = accumulation_dtype(q)
    with full_precision(q):
        scores = (q.to(dtype) * q.shape[-1] ** -0.5) @ k.to(dtype).mT
        weights = masked_softmax(scores if soft is None else scores + soft, hidden, dim=-1)
        return (drop(weights, dropout_p) @ v.to(dtype)).to(q.dtype)
