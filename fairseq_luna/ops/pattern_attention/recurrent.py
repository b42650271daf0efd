"""Generation: one step at a time, from a cache of keys and values."""

from typing import NamedTuple

import torch
from torch import Tensor

from ..dropout import drop
from ..dtypes import accumulation_dtype, full_precision
from ..masked_softmax import masked_softmax
from .fused import topk_attention
from .shared import Pattern, TopK, Window


class Cache(NamedTuple):
    """Keys and values of the latest N real steps; in a row with fewer, its last places have them.

    N grows with each step, for a :class:`.Window` up to its reach.
    """

    k: Tensor  # (B, H, N, D)
    v: Tensor  # (B, H, N, D)
    steps: Tensor | None  # (B,) int64, the number of real steps; None = at least N in all rows


def initial_cache(k: Tensor) -> Cache:
    """The cache before the first step, for keys ``(B, H, any number, D)``."""
    nothing = k[:, :, :0]
    return Cache(nothing, nothing, None)


def pattern_attention_step(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    pattern: Pattern,
    cache: Cache,
    *,
    padding_mask: Tensor | None = None,
    dropout_p: float = 0.0,
) -> tuple[Tensor, Cache]:
    """The next steps of causal :func:`.naive.pattern_attention`.

    Args:
        q, k, v: ``(B, H, T, D)``, usually T = 1.
        pattern: not :class:`.RandomBlocks`, nor a window with ``first``, which has left the cache.
        cache: of the steps before.
        padding_mask: ``(B, T)`` bool, True = padding: neither seen nor counted.
        dropout_p: dropout probability of the weights.

    Returns:
        ``(B, H, T, D)`` in the dtype of ``q``, zero at padding; and the cache after these steps.
    """
    outputs = []
    for t in range(q.shape[2]):
        now = slice(t, t + 1)
        padded = None if padding_mask is None else padding_mask[:, t]
        cache = with_step(cache, k[:, :, now], v[:, :, now], padded)
        y = _read(q[:, :, now], cache, pattern, dropout_p)
        outputs.append(y if padded is None else y.masked_fill(padded[:, None, None, None], 0))
        if isinstance(pattern, Window):
            unseen = max(0, cache.k.shape[2] - pattern.reach)
            cache = cache._replace(k=cache.k[:, :, unseen:], v=cache.v[:, :, unseen:])
    return outputs[0] if len(outputs) == 1 else torch.cat(outputs, dim=2), cache


def with_step(cache: Cache, k: Tensor, v: Tensor, padded: Tensor | None) -> Cache:
    """One more place, for ``k`` and ``v (B, H, 1, D)``: the last, or where they are ``padded (B,)`` the first."""
    if padded is None:
        steps = None if cache.steps is None else cache.steps + 1
        return Cache(torch.cat([cache.k, k], dim=2), torch.cat([cache.v, v], dim=2), steps)
    batch, _, places, _ = cache.k.shape
    before = torch.full((batch,), places, device=k.device) if cache.steps is None else cache.steps
    at_front = padded[:, None, None, None]

    def put(old: Tensor, new: Tensor) -> Tensor:
        return torch.where(at_front, torch.cat([new, old], dim=2), torch.cat([old, new], dim=2))

    return Cache(put(cache.k, k), put(cache.v, v), before + ~padded)


def _read(q: Tensor, cache: Cache, pattern: Pattern, dropout_p: float) -> Tensor:
    """What the newest step, whose query is ``q (B, H, 1, D)``, reads: ``(B, H, 1, D)``."""
    places = cache.k.shape[2]
    age = torch.arange(places - 1, -1, -1, device=q.device)
    steps = torch.full((1,), places, device=q.device) if cache.steps is None else cache.steps
    i = steps[:, None] - 1
    hidden = (age > i) | ~pattern.sees(i, i - age, steps)  # (B or 1, N)
    if isinstance(pattern, TopK):
        hidden_or_none = None if cache.steps is None else hidden
        return topk_attention(
            q, cache.k, cache.v, count=pattern.count, padding_mask=hidden_or_none, dropout_p=dropout_p
        )[0]
    dtype = accumulation_dtype(q)
    with full_precision(q):
        scores = (q.to(dtype) * q.shape[-1] ** -0.5) @ cache.k.to(dtype).mT
        weights = masked_softmax(scores, hidden[:, None, None, :], dim=-1)
        return (drop(weights, dropout_p) @ cache.v.to(dtype)).to(q.dtype)
