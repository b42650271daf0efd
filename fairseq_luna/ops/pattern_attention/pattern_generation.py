"""Attention to the steps of a pattern, generation: one step at a time, from a cache of keys and values."""

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from ..dropout import drop
from ..dtypes import accumulation_dtype, full_precision
from ..masked_softmax import masked_softmax
from ..padding import Padding, PaddingLike
from ..symbolic_sizes import smaller_size
from .patterns import Pattern, Strided, TopK, Window
from .topk_attention import topk_attention


class PatternCache(NamedTuple):
    """The state of generation: keys and values of the latest N real steps; in a row with fewer, in its last places.

    N grows with each step, for a :class:`.Window` up to its reach. For a :class:`.Strided` without padding, N are the
    steps of the newest step's block, and of the M blocks before it only the steps that later steps see are kept.
    """

    k: Tensor  # (B, H, N, D)
    v: Tensor  # (B, H, N, D)
    steps: Tensor | None  # (B,) int64, the number of real steps; None = at least N in all rows
    summary_k: Tensor | None = None  # (B, H, M * pattern.summary, D)
    summary_v: Tensor | None = None  # (B, H, M * pattern.summary, D)


class PatternRing(NamedTuple):
    """Keys and values of the latest N real steps in fixed places: the step at position p is in place ``p mod N``."""

    k: Tensor  # (B, H, N, D)
    v: Tensor  # (B, H, N, D)
    steps: Tensor  # (B,) int64, the number of real steps


def pattern_attention_step(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    pattern: Pattern,
    cache: PatternCache | PatternRing | None,
    *,
    padding: PaddingLike = None,
    dropout_p: float = 0.0,
) -> tuple[Tensor, PatternCache | PatternRing]:
    """One step of causal :func:`.pattern_attention_reference`: its arguments with T = 1.

    A window with ``first`` is unsupported: the first step is no longer cached. The cache is None before the first step;
    a :class:`PatternRing` keeps its shape.

    Returns:
        ``(B, H, 1, D)`` in the dtype of ``q``, zero at padding; and the cache after this step.
    """
    padding = Padding.of(padding)
    if isinstance(cache, PatternRing):
        cache = with_place(cache, k, v, padding)
        age = ages_of(cache)
        hidden = hidden_places(age, cache.steps, pattern)
        return padding.zero(_attend_to_places(q, cache.k, cache.v, age, hidden, pattern, dropout_p)), cache
    cache = cache or PatternCache(k[:, :, :0], v[:, :, :0], None)
    if isinstance(pattern, Strided):
        # Rows with padding reach the end of a block at different steps; a recorded graph has no branches.
        together = padding.mask is None and cache.steps is None and not torch.compiler.is_compiling()
        cache = _with_summary(cache, pattern) if together else _all_places(cache, pattern)
    cache = with_step(cache, k, v, padding)
    y = _read_latest(q, cache, pattern, dropout_p)
    if isinstance(pattern, Window):
        cache = cache._replace(k=_last_places(cache.k, pattern.reach), v=_last_places(cache.v, pattern.reach))
    return padding.zero(y), cache


def with_step(cache: PatternCache, k: Tensor, v: Tensor, padding: PaddingLike) -> PatternCache:
    """One more place for ``k`` and ``v (B, H, 1, D)``: the last place, or in rows with ``padding`` the first."""
    padding = Padding.of(padding)
    if padding.mask is None:
        steps = None if cache.steps is None else cache.steps + 1
        return cache._replace(k=torch.cat([cache.k, k], dim=2), v=torch.cat([cache.v, v], dim=2), steps=steps)
    batch, _, places, _ = cache.k.shape
    before = torch.full((batch,), places, device=k.device) if cache.steps is None else cache.steps
    at_front = padding.mask[:, None, :, None]

    def put(old: Tensor, new: Tensor) -> Tensor:
        return torch.where(at_front, torch.cat([new, old], dim=2), torch.cat([old, new], dim=2))

    return PatternCache(put(cache.k, k), put(cache.v, v), before + ~padding.mask[:, 0])


def allocate_ring(cache: PatternCache | PatternRing, pattern: Pattern, max_steps: int) -> PatternRing:
    """The same cache in fixed places, for at most ``max_steps`` steps; a window needs no more than its reach."""
    if isinstance(pattern, Window):
        max_steps = min(max_steps, pattern.reach + 1)
    if isinstance(cache, PatternRing):  # it grows only if no step has left it
        free = max(0, max_steps - cache.k.shape[2])
        return cache._replace(k=F.pad(cache.k, (0, 0, 0, free)), v=F.pad(cache.v, (0, 0, 0, free)))
    if isinstance(pattern, Strided):
        cache = _all_places(cache, pattern)
    batch, _, places, _ = cache.k.shape
    # Of a full window only the distances to earlier steps are known, which is enough.
    steps = torch.full((batch,), places, device=cache.k.device) if cache.steps is None else cache.steps
    newest = steps[:, None] - 1
    age = torch.remainder(newest - torch.arange(max_steps, device=steps.device), max_steps)  # (B, N)
    source = (places - 1 - age).clamp(min=0)[:, None, :, None].expand(-1, cache.k.shape[1], -1, cache.k.shape[3])
    return PatternRing(cache.k.gather(2, source), cache.v.gather(2, source), steps)


def with_place(ring: PatternRing, k: Tensor, v: Tensor, padding: Padding) -> PatternRing:
    """The ring with ``k`` and ``v (B, H, 1, D)`` at the next position; a padded step changes nothing."""
    places = ring.k.shape[2]
    is_newest_place = torch.arange(places, device=k.device) == torch.remainder(ring.steps, places)[:, None]
    steps = ring.steps + 1
    if padding.mask is not None:
        is_newest_place, steps = is_newest_place & ~padding.mask, ring.steps + ~padding.mask[:, 0]
    at = is_newest_place[:, None, :, None]
    return PatternRing(torch.where(at, k, ring.k), torch.where(at, v, ring.v), steps)


def ages_of(ring: PatternRing) -> Tensor:
    """The number of steps since each place was written, 0 for the newest: ``(B, N)`` int64."""
    places = ring.k.shape[2]
    return torch.remainder(ring.steps[:, None] - 1 - torch.arange(places, device=ring.steps.device), places)


def hidden_places(age: Tensor, steps: Tensor, pattern: Pattern) -> Tensor:
    """The places that the newest step does not see: ``(B or 1, N)`` bool.

    ``age`` is ``(N,)`` or ``(B, N)``, ``steps (B or 1,)``.
    """
    i = steps[:, None] - 1
    return (age > i) | ~pattern.sees(i, i - age, steps)


def _last_places(x: Tensor, count: int) -> Tensor:
    """The last ``count`` places of ``x (B, H, N, D)``, or all if there are fewer."""
    places = x.shape[2]
    if torch.compiler.is_compiling():  # a slice would fix in a graph whether there are fewer
        return x.index_select(2, torch.arange(places - smaller_size(count, places), places, device=x.device))
    return x[:, :, max(0, places - count) :]


def _with_summary(cache: PatternCache, pattern: Strided) -> PatternCache:
    """The cache before a step that is not padded: if the block is complete, only the steps that later steps see."""
    if cache.k.shape[2] < pattern.stride:
        return cache

    def extended(summary: Tensor | None, block: Tensor) -> Tensor:
        seen = block[:, :, pattern.stride - pattern.summary :]
        return seen if summary is None else torch.cat([summary, seen], dim=2)

    summaries = extended(cache.summary_k, cache.k), extended(cache.summary_v, cache.v)
    return PatternCache(cache.k[:, :, :0], cache.v[:, :, :0], None, *summaries)


def _all_places(cache: PatternCache, pattern: Strided) -> PatternCache:
    """The cache without summaries, with zeros for the steps that have left it."""

    def in_place(summary: Tensor, own: Tensor) -> Tensor:
        blocks = summary.unflatten(2, (-1, pattern.summary))
        return torch.cat([F.pad(blocks, (0, 0, pattern.stride - pattern.summary, 0)).flatten(2, 3), own], dim=2)

    if cache.summary_k is None or cache.summary_v is None:
        return cache
    return PatternCache(in_place(cache.summary_k, cache.k), in_place(cache.summary_v, cache.v), None)


def _read_latest(q: Tensor, cache: PatternCache, pattern: Pattern, dropout_p: float) -> Tensor:
    """The result for the newest step, whose query is ``q (B, H, 1, D)``: ``(B, H, 1, D)``."""
    if cache.summary_k is not None and cache.summary_v is not None:  # every cached step is seen
        k, v = torch.cat([cache.summary_k, cache.k], dim=2), torch.cat([cache.summary_v, cache.v], dim=2)
        return _attend_to_visible(q, k, v, None, None, dropout_p)
    places = cache.k.shape[2]
    age = torch.arange(places - 1, -1, -1, device=q.device)
    if isinstance(pattern, TopK) and cache.steps is None:  # every step is seen
        return topk_attention(q, cache.k, cache.v, count=pattern.count, dropout_p=dropout_p)[0]
    steps = torch.full((1,), places, device=q.device) if cache.steps is None else cache.steps
    return _attend_to_places(q, cache.k, cache.v, age, hidden_places(age, steps, pattern), pattern, dropout_p)


def _attend_to_places(
    q: Tensor, k: Tensor, v: Tensor, age: Tensor, hidden: Tensor, pattern: Pattern, dropout_p: float
) -> Tensor:
    """Attention of ``q (B, H, 1, D)`` to the places ``(B, H, N, D)`` that are not ``hidden (B or 1, N)``.

    ``age`` is ``(N,)`` or ``(B, N)``.
    """
    if isinstance(pattern, TopK):
        return topk_attention(q, k, v, count=pattern.count, padding=hidden, dropout_p=dropout_p)[0]
    log_factors = None
    if isinstance(pattern, Window) and pattern.spans is not None:
        log_factors = pattern.scores(age if age.dim() == 1 else age[:, None, None])
    return _attend_to_visible(q, k, v, hidden[:, None, None, :], log_factors, dropout_p)


def _attend_to_visible(
    q: Tensor, k: Tensor, v: Tensor, hidden: Tensor | None, log_factors: Tensor | None, dropout_p: float
) -> Tensor:
    """Attention of ``q (B, H, 1, D)`` to places that are not ``hidden``.

    ``log_factors``, ``(H, 1, N)`` or ``(B, H, 1, N)``, is added to the scores.
    """
    dtype = accumulation_dtype(q)
    with full_precision(q):
        scores = (q.to(dtype) * q.shape[-1] ** -0.5) @ k.to(dtype).mT
        weights = masked_softmax(scores if log_factors is None else scores + log_factors, hidden, dim=-1)
        return (drop(weights, dropout_p) @ v.to(dtype)).to(q.dtype)
