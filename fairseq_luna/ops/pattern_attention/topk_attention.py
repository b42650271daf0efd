"""Top-k attention: reference and training form; the softmax of the reference is shared by all patterns."""

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from ..dropout import drop
from ..dtypes import accumulation_dtype, full_precision
from ..masked_softmax import masked_softmax, unseen_keys
from ..padding import Padding, PaddingLike
from ..symbolic_sizes import smaller_size


def topk_attention_reference(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    count: int,
    padding: PaddingLike = None,
    causal: bool = False,
    dropout_p: float = 0.0,
    need_weights: bool = False,
) -> tuple[Tensor, Tensor | None]:
    """Explicit sparse attention: over the steps whose score is at least the ``count``-th largest (arXiv 1912.11637).

    Args:
        q: ``(B, H, T, D)``.
        k, v: ``(B, H, S, D)``.
        count: steps that a query keeps; more if scores are equal.
        padding: ``(B, S)`` bool, True = padding: not seen.
        causal: query t sees the first t + 1 keys; T = S.
        dropout_p: dropout probability of the weights.
        need_weights: also return the weights.

    Returns:
        ``(B, H, T, D)`` and the weights ``(B, H, T, S)`` before dropout or None, in the dtype of ``q``. Zero where
        nothing is seen. Scores and softmax are in fp32 if ``q`` is half precision.
    """
    padding_mask = Padding.of(padding).mask
    hidden = torch.zeros(q.shape[0], 1, q.shape[2], k.shape[2], dtype=torch.bool, device=q.device)
    if padding_mask is not None:
        hidden = hidden | padding_mask[:, None, None, :]
    if causal:
        hidden = hidden | torch.ones_like(hidden).triu(1)
    out, weights = masked_attention_reference(q, k, v, hidden, count, dropout_p)
    return out.to(q.dtype), weights.to(q.dtype) if need_weights else None


def masked_attention_reference(
    q: Tensor, k: Tensor, v: Tensor, hidden: Tensor, count: int | None, dropout_p: float, m: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Attention ``(B, H, T, D)`` to the steps that are not ``hidden``, and its weights ``(B, H, T, S)``.

    With a ``count``, only the steps with the ``count`` largest scores; ``m`` are factors of the weights before they are
    divided by their sum. Zero where everything is hidden.
    """
    dtype = accumulation_dtype(q)
    scores = q.to(dtype) @ k.to(dtype).mT / math.sqrt(q.shape[-1])
    hidden = hidden if m is None else hidden | (m == 0)
    scores = scores.masked_fill(hidden, -torch.inf)
    if count is not None:
        smallest = scores.sort(dim=-1, descending=True).values[..., : min(count, k.shape[2])][..., -1:]
        scores = scores.masked_fill(scores < smallest, -torch.inf)
    nothing = hidden.all(dim=-1, keepdim=True)
    weights = scores.masked_fill(nothing, 0).softmax(-1).masked_fill(nothing, 0)
    if m is not None:
        weights = weights * m / (weights * m).sum(-1, keepdim=True).masked_fill(nothing, 1)
    return F.dropout(weights, dropout_p) @ v.to(dtype), weights


def topk_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    count: int,
    padding: PaddingLike = None,
    causal: bool = False,
    dropout_p: float = 0.0,
    need_weights: bool = False,
) -> tuple[Tensor, Tensor | None]:
    """The same function as :func:`topk_attention_reference`, with a threshold for each query.

    torch selects it without sorting the scores.
    """
    padding = Padding.of(padding)
    dtype, steps = accumulation_dtype(q), k.shape[2]
    hidden = None if padding.mask is None else padding.mask[:, None, None]
    if causal:
        hidden = unseen_keys(padding, steps, k.device)
    with full_precision(q):
        scores = (q.to(dtype) * q.shape[-1] ** -0.5) @ k.to(dtype).mT
        if isinstance(steps, torch.SymInt) or count < steps:
            seen = scores.detach()
            if hidden is not None:
                seen = seen.masked_fill(hidden, -torch.inf)
            smaller = seen < seen.topk(smaller_size(count, steps), sorted=True).values[..., -1:]
            hidden = smaller if hidden is None else smaller | hidden
        weights = masked_softmax(scores, hidden, dim=-1)
        out = drop(weights, dropout_p) @ v.to(dtype)
    return out.to(q.dtype), weights.to(q.dtype) if need_weights else None
