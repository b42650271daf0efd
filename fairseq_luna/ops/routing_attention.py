"""Routing Transformer's attention: softmax attention within clusters of queries."""

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from .chunks import split_into_chunks
from .dropout import drop
from .dtypes import accumulation_dtype, full_precision
from .masked_softmax import masked_softmax
from .padding import Padding, PaddingLike


def routing_attention_reference(
    q: Tensor,
    v: Tensor,
    centroids: Tensor,
    *,
    window: int,
    padding: PaddingLike = None,
    dropout_p: float = 0.0,
) -> Tensor:
    """Attention within the clusters of a step (Routing Transformer, arXiv 2003.05997, section 4.1).

        k = q / |q|
        S_c: the w steps with the largest products k_j m_c with the centroid m_c; of equal ones the earlier
        y_i = mean over the clusters c with i in S_c of softmax_j(q_i k_j / sqrt(D)) v_j, over j in S_c without i

    A sentence of n real steps uses the first ``n / window`` of the M centroids, rounded up, and clusters of ``window``
    steps; if it has more than ``M window`` steps, all centroids and clusters of ``n / M`` steps, rounded up. A step
    that is alone in its cluster sees itself. A step that is in no cluster has the result 0, as published.

    Args:
        q, v: ``(B, H, T, D)``.
        centroids: ``(H, M, D)``; they get no gradient.
        window: w, steps of a cluster.
        padding: ``(B, T)`` bool, True = padding, anywhere: neither seen nor counted.
        dropout_p: dropout probability of the weights.

    Returns:
        ``(B, H, T, D)`` in the dtype of ``q``; zero at padding. Scores and softmax are in fp32 for half precision.
    """
    padding_mask, dtype, steps = Padding.of(padding).mask, accumulation_dtype(q), q.shape[2]
    result_dtype, q, v, centroids = q.dtype, q.to(dtype), v.to(dtype), centroids.to(dtype)
    padded = Padding(padding_mask).with_mask(q.shape[0], steps, q.device).existing_mask[:, None, None]
    k = F.normalize(q, dim=-1)
    used, members = clusters_of((~padded).sum(-1, keepdim=True), centroids.shape[1], window)  # each (B, 1, 1, 1)
    nearness = (k.detach() @ centroids.mT).mT.masked_fill(padded, -torch.inf)  # (B, H, M, T)
    place = torch.arange(steps, device=q.device)
    nearer, equal = (compare(nearness[..., None, :], nearness[..., None]) for compare in (torch.gt, torch.eq))
    rank = (nearer | equal & (place < place[:, None])).sum(-1)
    chosen = (rank < members) & ~padded & (torch.arange(centroids.shape[1], device=q.device)[:, None] < used)
    itself = torch.eye(steps, dtype=torch.bool, device=q.device)
    alone = chosen.sum(-1)[..., None, None] == 1
    seen = chosen[..., None] & chosen[..., None, :] & (~itself | alone)  # (B, H, M, T, T)
    scores = (q @ k.mT * q.shape[-1] ** -0.5)[:, :, None]
    weights = F.dropout(masked_softmax(scores.expand(seen.shape), ~seen, dim=-1), dropout_p)
    y = (weights @ v[:, :, None]).sum(2) / chosen.sum(2).clamp(min=1)[..., None]
    return y.to(result_dtype)


def clusters_of(lengths: Tensor, number: int, window: int) -> tuple[Tensor, Tensor]:
    """How many of ``number`` clusters sentences of ``lengths`` use, and the steps of a cluster: as ``lengths``."""
    used = ((lengths + window - 1) // window).clamp(1, number)
    return used, ((lengths + number - 1) // number).clamp(min=window)


def routing_attention(
    q: Tensor,
    v: Tensor,
    centroids: Tensor,
    *,
    window: int,
    padding: PaddingLike = None,
    dropout_p: float = 0.0,
) -> Tensor:
    """The same function as :func:`routing_attention_reference`, with ``O(T (M + window))`` scores.

    The steps of each cluster are gathered, and their results added in their places.
    """
    padding, dtype, result_dtype = Padding.of(padding), accumulation_dtype(q), q.dtype
    batch, _, steps, size = q.shape
    if steps == 0:  # there are gradients of 0
        q, v = (F.pad(x, (0, 0, 0, 1)) for x in (q, v))
        return routing_attention(q, v, centroids, window=window)[:, :, :0]
    number = centroids.shape[1]
    largest = min(steps, max(window, -(-steps // number)))
    number = min(number, -(-steps // window))
    with full_precision(q):
        q, v = q.to(dtype), v.to(dtype)
        k = F.normalize(q, dim=-1)
        nearness = (k.detach() @ centroids[:, :number].to(dtype).mT).mT
        if padding.mask is not None:
            nearness = nearness.masked_fill(padding.mask[:, None, None], -torch.inf)
        # Of equal ones the earlier is first: topk has no order.
        index = nearness.sort(dim=-1, descending=True, stable=True).indices[..., :largest]  # (B, H, M, w)
        lengths = torch.full((1,), steps, device=q.device) if padding.mask is None else padding.lengths
        used, members = (x[:, None, None] for x in clusters_of(lengths, centroids.shape[1], window))
        members = torch.minimum(members, lengths[:, None, None])
        place = torch.arange(largest, device=q.device)
        chosen = (place < members) & (torch.arange(number, device=q.device)[:, None] < used)  # (B, M, w)
        chosen = chosen.expand(batch, -1, -1)[:, None]
        flat = index.flatten(2)[..., None]
        q, k, v = (x.gather(2, flat.expand(-1, -1, -1, size)).unflatten(2, index.shape[2:]) for x in (q, k, v))
        scores = q @ k.mT * size**-0.5
        # The smallest finite number is the weight 0, unless a step is alone.
        itself = torch.eye(largest, dtype=torch.bool, device=q.device)
        scores = scores.masked_fill(itself, torch.finfo(dtype).min / 2)
        weights = drop(masked_softmax(scores, ~chosen[..., None, :], dim=-1), dropout_p)
        y = (weights @ v) * chosen[..., None]
        sums = torch.cat([y, chosen.expand(index.shape)[..., None].to(dtype)], dim=-1).flatten(2, 3)
        total = sums.new_zeros(*sums.shape[:2], steps, size + 1)
        total = total.scatter_add(2, flat.expand(-1, -1, -1, size + 1), sums)
        y = total[..., :-1] / total[..., -1:].clamp(min=1)
    return y.to(result_dtype)


def cluster_sums(
    q: Tensor, centroids: Tensor, *, window: int, padding: PaddingLike = None, causal: bool = False
) -> Tensor:
    """The sum of the keys that are nearest to each centroid, for the moving average: ``(H, M, D)``.

    Args:
        q: ``(B, H, T, D)``; without a gradient.
        centroids: ``(H, M, D)``.
        window, padding: as of :func:`routing_attention_reference`.
        causal: a step has the cluster of :func:`routing_causal_attention_reference`.
    """
    padding, dtype = Padding.of(padding), accumulation_dtype(q)
    with full_precision(q):
        k = F.normalize(q.detach().to(dtype), dim=-1)
        k = padding.zero(k)
        if causal:
            nearest = _own_clusters(k, centroids, _step_positions(padding, q), window)
        else:
            lengths = torch.full((1,), q.shape[2], device=q.device) if padding.mask is None else padding.lengths
            used, _ = clusters_of(lengths, centroids.shape[1], window)
            nearest = _nearest_centroid(k, centroids, used[:, None])
        members = k.new_zeros(*k.shape[:3], centroids.shape[1]).scatter(-1, nearest[..., None], 1.0)
        return members.mT.matmul(k).sum(0)


def _nearest_centroid(k: Tensor, centroids: Tensor, used: Tensor) -> Tensor:
    """The nearest of the first ``used (B or 1, T or 1)`` centroids, of equal ones the first: ``(B, H, T)`` int64."""
    nearness = k @ centroids.to(k.dtype).mT  # (B, H, T, M)
    unused = torch.arange(centroids.shape[1], device=k.device) >= used[..., None]
    return nearness.masked_fill(unused[:, None], -torch.inf).argmax(-1)


def _own_clusters(k: Tensor, centroids: Tensor, positions: Tensor, window: int) -> Tensor:
    """The cluster of each step in causal attention: ``k (B, H, T, D)``, ``positions (B or 1, T)``; ``(B, H, T)``."""
    return _nearest_centroid(k.detach(), centroids, positions // window + 1)


def _step_positions(padding: Padding, q: Tensor) -> Tensor:
    return torch.arange(q.shape[2], device=q.device)[None] if padding.mask is None else padding.positions


def routing_causal_attention_reference(
    q: Tensor,
    v: Tensor,
    centroids: Tensor,
    *,
    window: int,
    padding: PaddingLike = None,
    dropout_p: float = 0.0,
) -> Tensor:
    """Attention to the latest steps of a step's own cluster, for a decoder.

        k = q / |q|
        c_i = argmax_c k_i m_c over the first 1 + p_i / window centroids, p_i = 0, 1, ... the position of the real step
        S_i: i and the latest steps j < i with c_j = c_i, together at most w
        y_i = softmax_j(q_i k_j / sqrt(D)) v_j, over j in S_i

    The published members, the w steps with the largest products, would depend on later steps. The cluster of a step
    does not: neither on the length nor on what follows. The first w steps are one cluster.

    Args:
        q, v, centroids: as of :func:`routing_attention_reference`.
        window: w, steps that a step sees, itself included.
        padding: ``(B, T)`` bool, True = padding, anywhere: neither seen nor counted.
        dropout_p: dropout probability of the weights.

    Returns:
        ``(B, H, T, D)`` in the dtype of ``q``; zero at padding. Scores and softmax are in fp32 for half precision.
    """
    padding_mask, dtype, steps = Padding.of(padding).mask, accumulation_dtype(q), q.shape[2]
    result_dtype, q, v, centroids = q.dtype, q.to(dtype), v.to(dtype), centroids.to(dtype)
    padded = Padding(padding_mask).with_mask(q.shape[0], steps, q.device).existing_mask
    k = F.normalize(q, dim=-1)
    used = ((~padded).cumsum(1) - 1).clamp(min=0).div(window, rounding_mode="floor") + 1
    nearness = (k.detach() @ centroids.mT).masked_fill(
        (torch.arange(centroids.shape[1], device=q.device) >= used[..., None])[:, None], -torch.inf
    )
    cluster = nearness.argmax(-1)
    place = torch.arange(steps, device=q.device)
    member = (cluster[..., None] == cluster[..., None, :]) & (place <= place[:, None]) & ~padded[:, None, None]
    as_late = member.flip(-1).cumsum(-1).flip(-1)  # the members from j on, up to i
    hidden = ~member | (as_late > window) | padded[:, None, :, None]
    weights = F.dropout(masked_softmax(q @ k.mT * q.shape[-1] ** -0.5, hidden, dim=-1), dropout_p)
    return (weights @ v).to(result_dtype)


def routing_causal_attention(
    q: Tensor,
    v: Tensor,
    centroids: Tensor,
    *,
    window: int,
    padding: PaddingLike = None,
    dropout_p: float = 0.0,
) -> Tensor:
    """The same function as :func:`routing_causal_attention_reference`, with ``O(T (M + window))`` scores.

    In the order of (cluster, position) the members that a step sees are the places before it. So the sorted steps are
    cut into chunks of ``window`` steps, and a chunk sees itself and the chunk before it.
    """
    padding, dtype, result_dtype = Padding.of(padding), accumulation_dtype(q), q.dtype
    steps, size, number = q.shape[2], q.shape[3], centroids.shape[1]
    # One graph for any length is not made for short sequences: see docs/design.md.
    one_chunk = not torch.compiler.is_compiling() and steps <= window
    chunk = max(1, steps) if one_chunk else window
    with full_precision(q):
        q, v = q.to(dtype), v.to(dtype)
        cluster = _own_clusters(F.normalize(q.detach(), dim=-1), centroids, _step_positions(padding, q), window)
        if padding.mask is not None:
            cluster = cluster.masked_fill(padding.mask[:, None], number)
        cluster, order = cluster.sort(dim=-1, stable=True)
        rows = order[..., None].expand(-1, -1, -1, size)
        q, v = (split_into_chunks(x.gather(2, rows), chunk, dim=-2) for x in (q, v))
        k, clusters = F.normalize(q, dim=-1), split_into_chunks(cluster, chunk, dim=-1, fill=number)
        seen = clusters
        if not one_chunk:
            k, v, seen = (_with_the_chunk_before(x, fill) for x, fill in ((k, 0), (v, 0), (clusters, -1)))
        age = torch.arange(chunk, device=q.device)[:, None] - torch.arange(seen.shape[-1], device=q.device)
        age = age + (0 if one_chunk else chunk)
        hidden = (clusters[..., None] != seen[..., None, :]) | (age < 0) | (age >= window)
        weights = drop(masked_softmax(q @ k.mT * size**-0.5, hidden, dim=-1), dropout_p)
        y = (weights @ v).flatten(2, 3)[:, :, :steps]
        y = y.gather(2, order.argsort(dim=-1)[..., None].expand(-1, -1, -1, size)).to(result_dtype)
    return padding.zero(y)


def _with_the_chunk_before(x: Tensor, fill: int) -> Tensor:
    """``x (B, H, chunks, chunk, ...)`` with the chunk before in front of each: ``(B, H, chunks, 2 chunk, ...)``."""
    first = torch.full_like(x[:, :, :1], fill)
    return torch.cat([torch.cat([first, x], dim=2)[:, :, : x.shape[2]], x], dim=3)


class ClusterCache(NamedTuple):
    """The state of generation: of each cluster its latest w members, the n-th in place ``n mod w``."""

    q: Tensor  # (B, H, M, w, D); keys are these with length 1
    v: Tensor  # (B, H, M, w, D)
    members: Tensor  # (B, H, M) int64, the number of members so far
    steps: Tensor  # (B,) int64, the number of real steps


def routing_causal_attention_step(
    q: Tensor,
    v: Tensor,
    centroids: Tensor,
    cache: ClusterCache | None,
    *,
    window: int,
    padding: PaddingLike = None,
    dropout_p: float = 0.0,
) -> tuple[Tensor, ClusterCache]:
    """One step of :func:`routing_causal_attention_reference`: its arguments with T = 1.

    The cache is None before the first step; its shape does not change.

    Returns:
        ``(B, H, 1, D)`` in the dtype of ``q``, zero at padding; and the cache after this step.
    """
    padding, dtype, result_dtype = Padding.of(padding), accumulation_dtype(q), q.dtype
    batch, heads, _, size = q.shape
    if cache is None:
        nothing = q.new_zeros(batch, heads, centroids.shape[1], window, size)
        members = torch.zeros(batch, heads, centroids.shape[1], dtype=torch.int64, device=q.device)
        cache = ClusterCache(nothing, nothing, members, members.new_zeros(batch))
    with full_precision(q):
        query = q.to(dtype)
        cluster = _own_clusters(F.normalize(query, dim=-1), centroids, cache.steps[:, None], window)  # (B, H, 1)
        cache = _with_member(cache, cluster, q, v, padding)
        ring = cluster[..., None, None].expand(-1, -1, -1, window, size)
        k, value = (x.gather(2, ring)[:, :, 0].to(dtype) for x in (cache.q, cache.v))
        hidden = torch.arange(window, device=q.device) >= cache.members.gather(2, cluster)  # (B, H, w)
        scores = query @ F.normalize(k, dim=-1).mT * size**-0.5
        y = drop(masked_softmax(scores, hidden[:, :, None], dim=-1), dropout_p) @ value
    return padding.zero(y.to(result_dtype)), cache


def _with_member(cache: ClusterCache, cluster: Tensor, q: Tensor, v: Tensor, padding: Padding) -> ClusterCache:
    """The cache with ``q`` and ``v (B, H, 1, D)`` in ``cluster (B, H, 1)``; a padded step changes nothing."""
    window = cache.q.shape[3]
    member = cache.members.gather(2, cluster)
    place = (cluster * window + torch.remainder(member, window))[..., None].expand(-1, -1, -1, q.shape[3])
    real = torch.ones_like(cluster[:, 0]) if padding.mask is None else (~padding.mask).to(cluster.dtype)  # (B, 1)
    kept = []
    for before, new in ((cache.q, q), (cache.v, v)):
        flat = before.flatten(2, 3)
        if padding.mask is not None:
            new = torch.where(padding.mask[:, None, :, None], flat.gather(2, place), new)
        kept.append(flat.scatter(2, place, new).view_as(before))
    members = cache.members.scatter_add(2, cluster, real[:, None].expand_as(cluster))
    return ClusterCache(kept[0], kept[1], members, cache.steps + real[:, 0])
