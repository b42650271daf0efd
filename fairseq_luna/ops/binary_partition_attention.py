"""BP-Transformer's attention: tokens nearby one by one, and tokens far away as spans of a binary tree."""

from collections.abc import Iterator
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from .dropout import drop
from .dtypes import accumulation_dtype, full_precision
from .masked_softmax import masked_softmax
from .padding import Padding, PaddingLike, computed_once, read_steps

# Levels of the tree: steps beyond its spans of 2^15 are not seen. The state of generation has as many.
LEVELS = 16
LEFT, RIGHT = 0, 1


def binary_partition_attention_reference(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    span_query: Tensor,
    own_position: Tensor,
    positions: Tensor,
    *,
    padding: PaddingLike = None,
    causal: bool = False,
    dropout_p: float = 0.0,
) -> Tensor:
    """Attention to spans that grow with their distance (BP-Transformer, arXiv 1911.04070, section 3).

    A node n of level l is the span of the real steps from ``n 2^l`` to ``(n + 1) 2^l - 1``, as far as there are any. A
    step sees itself, and on each side ``nodes`` nodes of level 0, behind them ``nodes`` of level 1, and so on:
    :func:`seen_nodes`. In a decoder only the left side is seen, whose spans have all ended. With u a span and s the
    ``span_query``::

        a_u = softmax over the steps j of u of s k_j / sqrt(D);  k_u = sum a_u,j k_j;  v_u = sum a_u,j v_j
        y_i = softmax over the nodes u that i sees of q_i (k_u + p) / sqrt(D), times v_u

    p is ``own_position`` for the step itself, and otherwise belongs to the level, the side and the number of the node
    there; levels above the last one of ``positions`` share its numbers.

    Args:
        q, k, v: ``(B, H, T, D)``.
        span_query: ``(H, D)``; at 0 a span is the mean of its steps.
        own_position: ``(D,)``.
        positions: ``(levels, sides, nodes, D)``; sides are left and right, or left alone if ``causal``.
        padding: ``(B, T)`` bool, True = padding, anywhere: neither seen nor counted.
        causal: without the right side.
        dropout_p: dropout probability of the weights.

    Returns:
        ``(B, H, T, D)`` in the dtype of ``q``; zero at padding. Scores and softmax are in fp32 for half precision.
    """
    padding_mask, dtype = Padding.of(padding).mask, accumulation_dtype(q)
    padded = Padding(padding_mask).with_mask(q.shape[0], q.shape[2], q.device).existing_mask
    parameters = [x.to(dtype) for x in (span_query, own_position, positions)]
    sentences = []
    for row, mask in enumerate(padded):
        steps = (~mask).nonzero()[:, 0]
        y = q[row].to(dtype) * 0  # a sentence of padding has a gradient too
        if len(steps):
            real = [x[row, :, steps].to(dtype) for x in (q, k, v)]
            y = y.index_copy(1, steps, _sentence_reference(*real, *parameters, causal=causal, dropout_p=dropout_p))
        sentences.append(y)
    return torch.stack(sentences).to(q.dtype)


def _sentence_reference(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    span_query: Tensor,
    own_position: Tensor,
    positions: Tensor,
    *,
    causal: bool,
    dropout_p: float,
) -> Tensor:
    """:func:`binary_partition_attention_reference` for one sentence without padding, ``(H, n, D)``."""
    count, scale = q.shape[1], q.shape[-1] ** -0.5
    seen_by_step = [list(seen_nodes(i, count, positions.shape, causal)) for i in range(count)]
    nodes = sorted({node for seen in seen_by_step for node, _ in seen})
    spans = [slice(number << level, (number + 1) << level) for level, number in nodes]
    shares = [(torch.einsum("hd,hnd->hn", span_query, k[:, span]) * scale).softmax(-1)[..., None] for span in spans]
    node_k, node_v = (
        torch.stack([(share * x[:, span]).sum(1) for share, span in zip(shares, spans, strict=True)], dim=1)
        for x in (k, v)
    )
    row = torch.full((count, len(nodes)), -1, device=q.device)  # of the position; -1: the node is not seen
    for i, seen in enumerate(seen_by_step):
        for node, position in seen:
            row[i, nodes.index(node)] = position
    p = torch.cat([own_position[None], positions.flatten(0, 2)])[row.clamp(min=0)]  # (n, nodes, D)
    scores = (q @ node_k.mT + torch.einsum("hnd,nmd->hnm", q, p)) * scale
    weights = scores.masked_fill(row < 0, -torch.inf).softmax(-1)
    return F.dropout(weights, dropout_p) @ node_v


def seen_nodes(i: int, count: int, shape: tuple[int, ...], causal: bool) -> Iterator[tuple[tuple[int, int], int]]:
    """The nodes, as (level, number), that step i of ``count`` steps sees, each with the row of its position.

    Row 0 is the step itself, then come the rows of positions of ``shape (levels, sides, nodes, D)``. If the next step
    to be seen is the inner child of its parent, the walk goes on with the parent. If it is the outer child, because the
    inner one has been seen already, the first node of the next level is this child in place of its parent.
    """
    levels, sides, nodes, _ = shape
    yield (0, i), 0
    for side in range(1 if causal else sides):
        forward = 1 if side == RIGHT else -1
        number, only_child = i + forward, None
        for level in range(LEVELS):
            if number < 0 or number << level >= count:
                break
            for m in range(nodes):
                node = (level, number) if m or only_child is None else (level - 1, only_child)
                if node[1] >= 0 and node[1] << node[0] < count:
                    yield node, 1 + (min(level, levels - 1) * sides + side) * nodes + m
                number += forward
            only_child = number if number % 2 == side else None
            number >>= 1


def binary_partition_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    span_query: Tensor,
    own_position: Tensor,
    positions: Tensor,
    *,
    padding: PaddingLike = None,
    causal: bool = False,
    dropout_p: float = 0.0,
) -> Tensor:
    """The same function as :func:`binary_partition_attention_reference`, with ``O(T nodes log T)`` scores.

    On level l, ``2^l`` neighbouring steps see the same nodes: they are one product.
    """
    padding, dtype, result_dtype = Padding.of(padding), accumulation_dtype(q), q.dtype
    steps, nodes = q.shape[2], positions.shape[2]
    if not steps:  # there are gradients of 0
        q, k, v = (F.pad(x, (0, 0, 0, 1)) for x in (q, k, v))
        return binary_partition_attention(q, k, v, span_query, own_position, positions, causal=causal)[:, :, :0]
    if padding.mask is not None:
        q, k, v = (read_steps(x, padding.real_first) for x in (q, k, v))
    sides = (LEFT,) if causal else (LEFT, RIGHT)
    levels = _levels_for(steps, nodes)
    hidden = _hidden_nodes(padding, levels, len(sides), nodes, steps, q.device)
    with full_precision(q):
        q, k, v, span_query, own, positions = (x.to(dtype) for x in (q, k, v, span_query, own_position, positions))
        q = q * q.shape[-1] ** -0.5
        tree = _tree(k, v, span_query * q.shape[-1] ** -0.5, padding, levels)
        by_position = q @ positions.flatten(0, 2).mT
        by_position = by_position.unflatten(-1, positions.shape[:3])
        scores, values, groups = [(q * (k + own)).sum(-1, keepdim=True)], [], []
        for level in range(levels):
            for side in sides:
                group = Group(level, side, nodes)
                groups.append(group)
                node_keys, node_values = (group.seen(tree, which, steps) for which in (0, 1))
                position = by_position[..., min(level, positions.shape[0] - 1), side, :]
                position = torch.cat([position[..., :1], position], dim=-1) if level else position
                scores.append(group.joined(group.cut(q) @ node_keys.mT, steps) + position)
                values.append(node_values)
        weights = drop(masked_softmax(torch.cat(scores, dim=-1), hidden, dim=-1), dropout_p)
        itself, *by_group = weights.split([1, *(x.shape[-2] for x in values)], dim=-1)
        y = itself * v
        for group, weight, value in zip(groups, by_group, values, strict=True):
            y = y + group.joined(group.cut(weight) @ value, steps)
    return padding.restore_places(y.to(result_dtype))


def _levels_for(steps: int, nodes: int) -> int:
    """The levels of which one of ``steps`` sees a node; at least 2, so that the query of spans has a gradient."""
    levels = 2
    while levels < LEVELS and ((1 + nodes * ((1 << levels) - 1)) >> (levels - 1)) << (levels - 1) < steps:
        levels += 1
    return levels


class Group(NamedTuple):
    """The steps that see the same nodes of a level on one side: ``2^level`` neighbours.

    Step i sees the nodes from number ``c = floor((i + shift) / 2^level)`` on, outwards. In the half of the group that
    is nearer to the nodes, the first one is the only child ``2 c`` or ``2 c + 1``.
    """

    level: int
    side: int
    nodes: int

    @property
    def forward(self) -> int:
        return 1 if self.side == RIGHT else -1

    @property
    def shift(self) -> int:
        """The distance from a step to the first step behind the nodes of lower levels."""
        return self.forward * (1 + self.nodes * ((1 << self.level) - 1))

    @property
    def before(self) -> int:
        """Places before the first step in its group."""
        return self.shift % (1 << self.level)

    def number(self, steps: int) -> int:
        """The number of groups."""
        return -(-(self.before + steps) >> self.level)

    def cut(self, x: Tensor) -> Tensor:
        """``(B, H, T, D)`` to ``(B, H, groups, 2^level, D)``."""
        steps, size = x.shape[2], 1 << self.level
        behind = self.number(steps) * size - self.before - steps
        return F.pad(x, (0, 0, self.before, behind)).unflatten(2, (-1, size))

    def joined(self, x: Tensor, steps: int) -> Tensor:
        """The inverse of :meth:`cut`."""
        return x.flatten(2, 3)[:, :, self.before : self.before + steps]

    def numbers(self, steps: int, device: torch.device) -> tuple[Tensor, Tensor]:
        """The numbers of the only child ``(groups, 1)`` and of the nodes ``(groups, nodes)``; some do not exist."""
        first = torch.arange(self.number(steps), device=device)[:, None] + ((self.shift - self.before) >> self.level)
        return 2 * first + self.side, first + self.forward * torch.arange(self.nodes, device=device)

    def seen(self, tree: list[tuple[Tensor, Tensor]], which: int, steps: int) -> Tensor:
        """Keys (``which`` = 0) or values (1) of the only child, above level 0, and of the nodes of each group."""
        child, numbers = self.numbers(steps, tree[0][0].device)
        levels = [(tree[self.level][which], numbers)]
        if self.level:
            levels.insert(0, (tree[self.level - 1][which], child))
        found = [x.index_select(2, n.clamp(0, x.shape[2] - 1).flatten()).unflatten(2, n.shape) for x, n in levels]
        return found[0] if len(found) == 1 else torch.cat(found, dim=3)

    def hidden(self, ends: Tensor, steps: int) -> Tensor:
        """The nodes of :meth:`seen` that a step does not see: ``(B, T, 1 + nodes)``; at level 0 ``(B, T, nodes)``."""
        child, numbers = self.numbers(steps, ends.device)
        size, end = 1 << self.level, ends[:, None, None, None]
        missing = (numbers[:, None] < 0) | (numbers[:, None] * size >= end)
        missing = missing.expand(-1, -1, size, -1)
        if self.level:
            place = torch.arange(size, device=ends.device)[:, None]
            nearer = (place < size // 2) if self.side == LEFT else (place >= size // 2)
            no_child = ~nearer | (child[:, None] < 0) | (child[:, None] * (size // 2) >= end)
            missing = torch.cat([no_child, missing[..., :1] | nearer, missing[..., 1:]], dim=-1)
        return missing.flatten(1, 2)[:, self.before : self.before + steps]


@computed_once
def _hidden_nodes(padding: Padding, levels: int, sides: int, nodes: int, steps: int, device: torch.device) -> Tensor:
    """The places, of itself and of the nodes of its groups, that each step does not see: ``(B or 1, 1, T, N)`` bool."""
    ends = torch.full((1,), steps, device=device) if padding.mask is None else padding.lengths
    behind = torch.arange(steps, device=device) >= ends[:, None]
    found = [behind[..., None]]
    for level in range(levels):
        found += [Group(level, side, nodes).hidden(ends, steps) for side in range(sides)]
    return (torch.cat(found, dim=-1) | behind[..., None])[:, None]


def _tree(k: Tensor, v: Tensor, span_query: Tensor, padding: Padding, levels: int) -> list[tuple[Tensor, Tensor]]:
    """Keys and values of all nodes by level: ``(B, H, T / 2^level, D)`` each; real steps come first."""
    steps = k.shape[2]
    size = (k * span_query[:, None]).sum(-1)  # log of the sum of the weights of a node, before they are divided by it
    if padding.mask is not None:
        behind = torch.arange(steps, device=k.device) >= padding.lengths[:, None]
        size = size.masked_fill(behind[:, None], _nothing(k.dtype))
    found = [(k, v)]
    for _ in range(1, levels):
        odd = k.shape[2] % 2
        k, v = (F.pad(x, (0, 0, 0, odd)).unflatten(2, (-1, 2)) for x in (k, v))
        size = F.pad(size, (0, odd), value=_nothing(k.dtype)).unflatten(2, (-1, 2))
        k, v, size = _merged(k, v, size)
        found.append((k, v))
    return found


def _nothing(dtype: torch.dtype) -> float:
    """The size of a node without steps: the logarithm of 0, but finite."""
    return torch.finfo(dtype).min / 4


def _merged(k: Tensor, v: Tensor, size: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Parents of the children ``k (..., 2, D)``, ``v (..., 2, D)`` and ``size (..., 2)``."""
    share = size.softmax(-1)[..., None]
    return (share * k).sum(-2), (share * v).sum(-2), size.logsumexp(-1)


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
    parents = _merged(children[0].gather(3, wide), children[1].gather(3, wide), children[2].gather(3, pair))
    here = (torch.arange(places, device=k.device) == torch.remainder(number, places)[..., None]) & due[..., None]
    here = here[:, None]  # (B, 1, LEVELS, R)
    new = [torch.cat([own[:, :, None], parent], dim=2) for own, parent in zip((k, v, size), parents, strict=True)]
    return SpanCache(
        torch.where(here[..., None], new[0], cache.k),
        torch.where(here[..., None], new[1], cache.v),
        torch.where(here, new[2], cache.size),
        steps,
    )


def _seen_places(cache: SpanCache, nodes: int, position_levels: int) -> tuple[Tensor, Tensor]:
    """The places that the newest step does not see, and the rows of their positions: each ``(B, LEVELS R)``."""
    places = cache.k.shape[3]
    level = torch.arange(LEVELS + 1, device=cache.k.device)
    behind = cache.steps[:, None] - 2 - nodes * ((1 << level) - 1)  # the step behind the nodes of lower levels
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
