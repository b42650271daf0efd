"""BP-Transformer's attention: tokens nearby one by one, and tokens far away as spans of a binary tree."""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from ..dropout import drop
from ..dtypes import accumulation_dtype, full_precision
from ..masked_softmax import masked_softmax
from ..padding import Padding, PaddingLike, computed_once

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
    step sees itself, and on each side ``nodes`` nodes of level 0, beyond them ``nodes`` of level 1, and so on:
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

    On level l, ``2^l`` neighboring steps see the same nodes: they are one product.
    """
    padding, dtype, result_dtype = Padding.of(padding), accumulation_dtype(q), q.dtype
    steps, nodes = q.shape[2], positions.shape[2]
    if steps == 0:  # there are gradients of 0
        q, k, v = (F.pad(x, (0, 0, 0, 1)) for x in (q, k, v))
        return binary_partition_attention(q, k, v, span_query, own_position, positions, causal=causal)[:, :, :0]
    q, k, v = (padding.put_real_first(x) for x in (q, k, v))
    sides = (LEFT,) if causal else (LEFT, RIGHT)
    levels = _levels_for(steps, nodes)
    hidden = _hidden_nodes(padding, levels, len(sides), nodes, steps, q.device)
    with full_precision(q):
        q, k, v, span_query, self_position, positions = (
            x.to(dtype) for x in (q, k, v, span_query, own_position, positions)
        )
        q = q * q.shape[-1] ** -0.5
        tree = _build_tree(k, v, span_query * q.shape[-1] ** -0.5, padding, levels)
        by_position = q @ positions.flatten(0, 2).mT
        by_position = by_position.unflatten(-1, positions.shape[:3])
        scores, values, groups = [(q * (k + self_position)).sum(-1, keepdim=True)], [], []
        for level in range(levels):
            for side in sides:
                group = NodeGroup(level, side, nodes)
                groups.append(group)
                node_keys, node_values = (group.gather_nodes(tree, which, steps) for which in (0, 1))
                position = by_position[..., min(level, positions.shape[0] - 1), side, :]
                position = torch.cat([position[..., :1], position], dim=-1) if level else position
                # So the gradient of node_keys is contiguous: inductor of torch 2.6 cannot add up its transpose.
                products = (node_keys @ group.split_steps(q).mT).mT
                scores.append(group.merge_steps(products, steps) + position)
                values.append(node_values)
        weights = drop(masked_softmax(torch.cat(scores, dim=-1), hidden, dim=-1), dropout_p)
        self_weight, *by_group = weights.split([1, *(x.shape[-2] for x in values)], dim=-1)
        y = self_weight * v
        for group, weight, value in zip(groups, by_group, values, strict=True):
            y = y + group.merge_steps(group.split_steps(weight) @ value, steps)
    return padding.restore_places(y.to(result_dtype))


def _levels_for(steps: int, nodes: int) -> int:
    """The number of levels with a node that a step sees; at least 2, so that the query of spans has a gradient.

    A compiled graph has an even number, and its last level may have no such node: each number is another graph.
    """
    levels = 2
    while levels < LEVELS and ((1 + nodes * ((1 << levels) - 1)) >> (levels - 1)) << (levels - 1) < steps:
        levels += 2 if torch.compiler.is_compiling() else 1
    return levels


@dataclass(frozen=True)
class NodeGroup:
    """The steps that see the same nodes of a level on one side: ``2^level`` neighbors.

    Step i sees the nodes from number ``c = floor((i + shift) / 2^level)`` on, outwards. In the half of the group that
    is nearer to the nodes, the first one is the only child ``2 c`` or ``2 c + 1``.
    """

    level: int
    side: int
    nodes: int

    @property
    def direction(self) -> int:
        return 1 if self.side == RIGHT else -1

    @property
    def shift(self) -> int:
        """The distance from a step to the first step beyond the nodes of lower levels."""
        return self.direction * (1 + self.nodes * ((1 << self.level) - 1))

    @property
    def left_padding(self) -> int:
        """Places before the first step in its group."""
        return self.shift % (1 << self.level)

    def num_groups(self, steps: int) -> int:
        """The number of groups."""
        return -(-(self.left_padding + steps) >> self.level)

    def split_steps(self, x: Tensor) -> Tensor:
        """``(B, H, T, D)`` to ``(B, H, groups, 2^level, D)``."""
        steps, size = x.shape[2], 1 << self.level
        right_padding = self.num_groups(steps) * size - self.left_padding - steps
        return F.pad(x, (0, 0, self.left_padding, right_padding)).unflatten(2, (-1, size))

    def merge_steps(self, x: Tensor, steps: int) -> Tensor:
        """The inverse of :meth:`split_steps`."""
        return x.flatten(2, 3)[:, :, self.left_padding : self.left_padding + steps]

    def node_indices(self, steps: int, device: torch.device) -> tuple[Tensor, Tensor]:
        """The numbers of the only child ``(groups, 1)`` and of the nodes ``(groups, nodes)``; some do not exist."""
        first = torch.arange(self.num_groups(steps), device=device)[:, None] + (
            (self.shift - self.left_padding) >> self.level
        )
        return 2 * first + self.side, first + self.direction * torch.arange(self.nodes, device=device)

    def gather_nodes(self, tree: list[tuple[Tensor, Tensor]], part: int, steps: int) -> Tensor:
        """Keys (``which`` = 0) or values (1) of the only child, above level 0, and of the nodes of each group."""
        child, numbers = self.node_indices(steps, tree[0][0].device)
        levels = [(tree[self.level][part], numbers)]
        if self.level:
            levels.insert(0, (tree[self.level - 1][part], child))
        gathered = [x.index_select(2, _clamped_index(n, x.shape[2]).flatten()).unflatten(2, n.shape) for x, n in levels]
        return gathered[0] if len(gathered) == 1 else torch.cat(gathered, dim=3)

    def invisible_nodes(self, ends: Tensor, steps: int) -> Tensor:
        """The gathered nodes that a step does not see: ``(B, T, 1 + nodes)``; at level 0 ``(B, T, nodes)``."""
        child, numbers = self.node_indices(steps, ends.device)
        size, end = 1 << self.level, ends[:, None, None, None]
        missing = (numbers[:, None] < 0) | (numbers[:, None] * size >= end)
        missing = missing.expand(-1, -1, size, -1)
        if self.level:
            place = torch.arange(size, device=ends.device)[:, None]
            nearer = (place < size // 2) if self.side == LEFT else (place >= size // 2)
            no_child = ~nearer | (child[:, None] < 0) | (child[:, None] * (size // 2) >= end)
            missing = torch.cat([no_child, missing[..., :1] | nearer, missing[..., 1:]], dim=-1)
        return missing.flatten(1, 2)[:, self.left_padding : self.left_padding + steps]


def _clamped_index(index: Tensor, size: int) -> Tensor:
    """``index`` clamped to the places 0 to ``size - 1`` of a level."""
    if torch.compiler.is_compiling():
        # Inductor of torch 2.13 writes clamp into the index itself, and stops with "vr must not be None for symbol q0".
        index = torch.where(index < 0, 0, index)
        return torch.where(index < size, index, size - 1)
    return index.clamp(0, size - 1)


@computed_once
def _hidden_nodes(padding: Padding, levels: int, sides: int, nodes: int, steps: int, device: torch.device) -> Tensor:
    """The places, of itself and of the nodes of its groups, that each step does not see: ``(B or 1, 1, T, N)`` bool."""
    ends = torch.full((1,), steps, device=device) if padding.mask is None else padding.lengths
    is_padding = torch.arange(steps, device=device) >= ends[:, None]
    invisible = [is_padding[..., None]]
    for level in range(levels):
        invisible += [NodeGroup(level, side, nodes).invisible_nodes(ends, steps) for side in range(sides)]
    return (torch.cat(invisible, dim=-1) | is_padding[..., None])[:, None]


def _build_tree(k: Tensor, v: Tensor, span_query: Tensor, padding: Padding, levels: int) -> list[tuple[Tensor, Tensor]]:
    """Keys and values of all nodes by level: ``(B, H, T / 2^level, D)`` each; real steps come first."""
    steps = k.shape[2]
    size = (k * span_query[:, None]).sum(-1)  # log of the sum of the weights of a node, before they are divided by it
    if padding.mask is not None:
        is_padding = torch.arange(steps, device=k.device) >= padding.lengths[:, None]
        size = size.masked_fill(is_padding[:, None], _log_of_zero(k.dtype))
    tree = [(k, v)]
    for _ in range(1, levels):
        odd = k.shape[2] % 2
        k, v = (F.pad(x, (0, 0, 0, odd)).unflatten(2, (-1, 2)) for x in (k, v))
        size = F.pad(size, (0, odd), value=_log_of_zero(k.dtype)).unflatten(2, (-1, 2))
        k, v, size = merge_children(k, v, size)
        tree.append((k, v))
    return tree


def _log_of_zero(dtype: torch.dtype) -> float:
    """The size of a node without steps: the logarithm of 0, but finite."""
    return torch.finfo(dtype).min / 4


def merge_children(k: Tensor, v: Tensor, size: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Parents of the children ``k (..., 2, D)``, ``v (..., 2, D)`` and ``size (..., 2)``."""
    share = size.softmax(-1)[..., None]
    return (share * k).sum(-2), (share * v).sum(-2), size.logsumexp(-1)
