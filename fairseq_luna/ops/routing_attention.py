"""Routing Transformer's attention: softmax attention within clusters of queries."""

import torch
import torch.nn.functional as F
from torch import Tensor

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
    if not steps:  # there are gradients of 0
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


def cluster_sums(q: Tensor, centroids: Tensor, *, window: int, padding: PaddingLike = None) -> Tensor:
    """The sum of the keys that are nearest to each centroid, for the moving average: ``(H, M, D)``.

    Args:
        q: ``(B, H, T, D)``; without a gradient.
        centroids: ``(H, M, D)``.
        window, padding: as of :func:`routing_attention_reference`.
    """
    padding, dtype = Padding.of(padding), accumulation_dtype(q)
    with full_precision(q):
        k = F.normalize(q.detach().to(dtype), dim=-1)
        k = padding.zero(k)
        lengths = torch.full((1,), q.shape[2], device=q.device) if padding.mask is None else padding.lengths
        used, _ = clusters_of(lengths, centroids.shape[1], window)
        nearness = k @ centroids.to(dtype).mT  # (B, H, T, M)
        unused = torch.arange(centroids.shape[1], device=q.device) >= used[:, None]
        nearest = nearness.masked_fill(unused[:, None, None], -torch.inf).argmax(-1, keepdim=True)
        return torch.zeros_like(nearness).scatter(-1, nearest, 1.0).mT.matmul(k).sum(0)
