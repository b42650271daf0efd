"""Specification: the weights of learned slots, normalised over the steps and then over the slots."""

import torch
import torch.nn.functional as F
from torch import Tensor

from ..dtypes import accumulation_dtype


def external_attention(
    q: Tensor, keys: Tensor, values: Tensor, *, padding_mask: Tensor | None = None, dropout_p: float = 0.0
) -> Tensor:
    """Attention to S learned slots (arXiv 2105.02358, equations 5 and 6).

        a = q K^T;    w_is = exp(a_is) / (sum over real j of exp(a_js));    y_i = sum over s of w_is V_s / (sum of w_i)

    Args:
        q: ``(B, H, T, D)``.
        keys: K, ``(S, D)``, of all heads.
        values: V, ``(S, E)``.
        padding_mask: ``(B, T)`` bool, True = padding: not in the sum over j; its own output is unspecified.
        dropout_p: dropout probability of the weights.

    Returns:
        ``(B, H, T, E)`` in the dtype of ``q``; sums are in fp32 for half precision. 0 for a sentence that is all
        padding.
    """
    return _attention(q, keys, values, padding_mask, dropout_p, causal=False)


def external_causal_attention(
    q: Tensor, keys: Tensor, values: Tensor, *, padding_mask: Tensor | None = None, dropout_p: float = 0.0
) -> Tensor:
    """:func:`external_attention` with j over the real steps up to i. Before the first real step y is 0."""
    return _attention(q, keys, values, padding_mask, dropout_p, causal=True)


def _attention(
    q: Tensor, keys: Tensor, values: Tensor, padding_mask: Tensor | None, dropout_p: float, *, causal: bool
) -> Tensor:
    dtype = accumulation_dtype(q)
    scores = q.to(dtype) @ keys.to(dtype).mT  # (B, H, T, S)
    steps = scores.shape[2]
    seen = torch.ones(steps, steps, dtype=torch.bool, device=q.device)
    seen = (seen.tril() if causal else seen)[None, None, :, :, None]  # (B, H, i, j, S)
    if padding_mask is not None:
        seen = seen & ~padding_mask[:, None, None, :, None]
    nothing = ~seen.any(3)  # (B, H, i, S)
    # log of w_is, by the difference to every a_js: exp(a) alone could overflow
    differences = (scores[:, :, None] - scores[:, :, :, None]).masked_fill(~seen, -torch.inf)
    logs = -differences.masked_fill(nothing[:, :, :, None], 0).logsumexp(3)
    weights = logs.softmax(-1).masked_fill(nothing, 0)
    return (F.dropout(weights, dropout_p) @ values.to(dtype)).to(q.dtype)
