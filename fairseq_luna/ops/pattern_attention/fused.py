"""Top-k attention: a threshold for each query from torch's selection, without sorting its scores."""

import torch
from torch import Tensor

from ..dropout import drop
from ..dtypes import accumulation_dtype, full_precision
from ..masked_softmax import masked_softmax, unseen_keys
from ..padding import Padding, PaddingLike


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
    """Attention to the ``count`` steps with the largest scores; specified by :func:`.naive.topk_attention`.

    Args:
        q: ``(B, H, T, D)``.
        k, v: ``(B, H, S, D)``.
        count: steps that a query keeps; more if scores are equal.
        padding: of the steps: not seen.
        causal: query t sees the first t + 1 keys; T = S.
        dropout_p: dropout probability of the weights.
        need_weights: also return the weights.

    Returns:
        ``(B, H, T, D)`` and the weights ``(B, H, T, S)`` before dropout or None, in the dtype of ``q``.
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
            smaller = seen < seen.topk(torch.sym_min(count, steps), sorted=True).values[..., -1:]
            hidden = smaller if hidden is None else smaller | hidden
        weights = masked_softmax(scores, hidden, dim=-1)
        out = drop(weights, dropout_p) @ v.to(dtype)
    return out.to(q.dtype), weights.to(q.dtype) if need_weights else None
