"""One step of BP-Transformer's attention: a tree of spans that grows with the text, in memory of a fixed shape."""

from typing import NamedTuple

import torch
from torch import Tensor

from ..dropout import drop
from ..dtypes import accumulation_dtype, full_precision
from ..masked_softmax import masked_softmax
from ..padding import Padding, PaddingLike
from .tree_attention import LEFT, LEVELS, merge_children


class SpanCache(NamedTuple):
    """The state of generation: of each level the latest R nodes, the node n in place ``n mod R``.

    R is ``2 nodes + 2``. A node of level l is made l steps after its last step, from children of the state before: so
    all levels are advanced at once. It is seen later than that.
    """

    k: Tensor  # (B, H, LEVELS, R, D)
    v: Tensor  # (B, H, LEVELS, R, D)
    size: Tensor  # (B, H, LEVELS, R), log of the sum of the weights in a node
    steps: Tensor  # (B,) int64, the number of real steps


def binary_partition_attention_step(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    span_query: Tensor,
    own_position: Tensor,
    positions: Tensor,
    cache: SpanCache | None,
    *,
    padding: PaddingLike = None,
    dropout_p: float = 0.0,
) -> tuple[Tensor, SpanCache]:
    """One step of causal :func:`binary_partition_attention_reference`: its arguments with T = 1.

    The cache is None before the first step; its shape does not change.

    Returns:
        ``(B, H, 1, D)`` in the dtype of ``q``, zero at padding; and the cache after this step, in the dtype of sums.
    """
    padding, dtype, result_dtype = Padding.of(padding), accumulation_dtype(q), q.dtype
    nodes, scale = positions.shape[2], q.shape[-1] ** -0.5
    with full_precision(q):
        q, k, v, span_query, own, positions = (x.to(dtype) for x in (q, k, v, span_query, own_position, positions))
        if cache is None:
            empty = k.new_zeros(*k.shape[:2], LEVELS, 2 * nodes + 2, k.shape[3])
            cache = SpanCache(empty, empty, empty[..., 0], q.new_zeros(q.shape[0], dtype=torch.int64))
        cache = _with_step(cache, k, v, (k * span_query[:, None]).sum(-1) * scale, padding)
        hidden, row = _seen_places(cache, nodes, positions.shape[0])
        rows = torch.cat([own[None], positions[:, LEFT].flatten(0, 1)])
        by_position = (q @ rows.mT).gather(-1, row[:, None, None].expand(-1, q.shape[1], -1, -1))
        scores = q @ cache.k.flatten(2, 3).mT + by_position
        weights = drop(masked_softmax(scores * scale, hidden[:, None, None], dim=-1), dropout_p)
        y = weights @ cache.v.flatten(2, 3)
    return padding.zero(y.to(result_dtype)), cache


def _with_step(cache: SpanCache, k: Tensor, v: Tensor, size: Tensor, padding: Padding) -> SpanCache:
    """The cache with a step's ``k``, ``v (B, H, 1, D)`` and ``size (B, H, 1)``; a padded step changes nothing."""
    places = cache.k.shape[3]
    level = torch.arange(LEVELS, device=k.device)
    waited = cache.steps[:, None] + 1 - level  # (B, LEVELS); the children of a new node are there if it is a multiple
    number = (waited >> level) - 1
    due = (waited >= 1 << level) & (waited & ((1 << level) - 1) == 0)
    steps = cache.steps + 1
    if padding.mask is not None:
        due, steps = due & ~padding.mask, cache.steps + ~padding.mask[:, 0]
    pair = torch.remainder(number[:, None, 1:], places // 2)[..., None, None]  # (B, 1, LEVELS - 1, 1, 1)
    pair = pair.expand(-1, k.shape[1], -1, -1, 2)
    children = [x[:, :, :-1].unflatten(3, (-1, 2)) for x in (cache.k, cache.v, cache.size)]
    wide = pair[..., None].expand(*pair.shape, k.shape[3])
    parents = merge_children(children[0].gather(3, wide), children[1].gather(3, wide), children[2].gather(3, pair))
    is_new = (torch.arange(places, device=k.device) == torch.remainder(number, places)[..., None]) & due[..., None]
    is_new = is_new[:, None]  # (B, 1, LEVELS, R)
    new = [torch.cat([own[:, :, None], parent], dim=2) for own, parent in zip((k, v, size), parents, strict=True)]
    return SpanCache(
        torch.where(is_new[..., None], new[0], cache.k),
        torch.where(is_new[..., None], new[1], cache.v),
        torch.where(is_new, new[2], cache.size),
        steps,
    )


def _seen_places(cache: SpanCache, nodes: int, position_levels: int) -> tuple[Tensor, Tensor]:
    """The places that the newest step does not see, and the rows of their positions: each ``(B, LEVELS R)``."""
    places = cache.k.shape[3]
    level = torch.arange(LEVELS + 1, device=cache.k.device)
    behind = cache.steps[:, None] - 2 - nodes * ((1 << level) - 1)  # the step beyond the nodes of lower levels
    first = (behind >> level)[:, :-1, None]
    is_child = (behind >> (level - 1).clamp(min=0)) & 1 == 0  # instead of the first node its child
    is_child = is_child & (level > 0) & (level < LEVELS)
    level = level[:-1, None]
    newest = ((cache.steps[:, None, None] - level).clamp(min=0) >> level) - 1
    number = newest - torch.remainder(newest - torch.arange(places, device=level.device), places)
    distance = first - number
    node = (distance >= 0) & (distance < nodes) & ~((distance == 0) & is_child[:, :-1, None])
    child = (distance == nodes) & is_child[:, 1:, None]
    itself = (distance == -1) & (level == 0)
    hidden = (number < 0) | ~(node | child | itself)
    row = 1 + level.clamp(max=position_levels - 1) * nodes + distance.clamp(0, nodes - 1)
    child_row = 1 + (level + 1).clamp(max=position_levels - 1) * nodes
    row = torch.where(child, child_row, row).masked_fill(itself, 0)
    return hidden.flatten(1), row.flatten(1)
