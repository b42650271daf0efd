"""Star-Transformer's attention: each step sees its two neighbors, itself and a relay."""

import torch
import torch.nn.functional as F
from torch import Tensor

from .dropout import drop
from .dtypes import accumulation_dtype, full_precision
from .masked_softmax import masked_softmax
from .padding import Padding, PaddingLike, computed_once


def star_attention_reference(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    relay_k: Tensor,
    relay_v: Tensor,
    *,
    padding: PaddingLike = None,
    dropout_p: float = 0.0,
) -> Tensor:
    """``y_i = softmax(q_i k_j / sqrt(D)) v_j`` over the steps i - 1, i, i + 1 and the relay (arXiv 1902.09113, eq. 3).

    Args:
        q, k, v: ``(B, H, T, D)``.
        relay_k, relay_v: ``(B, H, 1, D)``, key and value of the relay.
        padding: ``(B, T)`` bool, True = padding, anywhere: neither seen nor counted.
        dropout_p: dropout probability of the weights.

    Returns:
        ``(B, H, T, D)`` in the dtype of ``q``; zero at padding. Scores and softmax are in fp32 for half precision.
    """
    padding_mask, dtype = Padding.of(padding).mask, accumulation_dtype(q)
    result_dtype = q.dtype
    q, k, v, relay_k, relay_v = (x.to(dtype) for x in (q, k, v, relay_k, relay_v))
    padded = Padding(padding_mask).with_mask(q.shape[0], q.shape[2], q.device).existing_mask
    position = (~padded).cumsum(1) - 1
    distance = (position[:, None, :, None] - position[:, None, None, :]).abs()
    hidden = (distance > 1) | padded[:, None, None]
    hidden = F.pad(hidden, (0, 1), value=False)  # the relay is seen by all
    scores = q @ torch.cat([k, relay_k], dim=2).mT * q.shape[-1] ** -0.5
    weights = F.dropout(scores.masked_fill(hidden, -torch.inf).softmax(-1), dropout_p)
    y = weights @ torch.cat([v, relay_v], dim=2)
    return y.masked_fill(padded[:, None, :, None], 0).to(result_dtype)


def star_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    relay_k: Tensor,
    relay_v: Tensor,
    *,
    padding: PaddingLike = None,
    dropout_p: float = 0.0,
) -> Tensor:
    """The same function as :func:`star_attention_reference`, O(T): four products of a number each, without a matrix."""
    padding, dtype, result_dtype = Padding.of(padding), accumulation_dtype(q), q.dtype
    steps = q.shape[2]
    q, k, v = (padding.put_real_first(x) for x in (q, k, v))
    with full_precision(q):
        q, k, v, relay_k, relay_v = (x.to(dtype) for x in (q, k, v, relay_k, relay_v))
        q = q * q.shape[-1] ** -0.5
        keys, values = ([*_neighbors(x), relay] for x, relay in ((k, relay_k), (v, relay_v)))
        scores = torch.cat([(q * key).sum(-1, keepdim=True) for key in keys], dim=-1)
        weights = drop(masked_softmax(scores, _hidden_ends(padding, steps, q.device), dim=-1), dropout_p)
        y = sum(weight * value for weight, value in zip(weights.split(1, dim=-1), values, strict=True))
    return padding.restore_places(y.to(result_dtype))


def _neighbors(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """For each step of ``x (B, H, T, D)`` the step before it, itself and the step after it; 0 beyond the ends."""
    around = F.pad(x, (0, 0, 1, 1))
    return around[:, :, :-2], x, around[:, :, 2:]


@computed_once
def _hidden_ends(padding: Padding, steps: int, device: torch.device) -> Tensor:
    """Which of neighbor, step, neighbor and relay a step does not see: ``(B or 1, 1, T, 4)`` bool."""
    ends = torch.full((1,), steps, device=device) if padding.mask is None else padding.lengths
    distance = torch.arange(-1, 3, device=device)  # the last one stands for the relay, which every step sees
    seen = torch.arange(steps, device=device)[:, None] + distance
    # F.pad would add the relay too, but what inductor of torch 2.11 makes of it for bool is no valid C++.
    hidden = ((seen < 0) | (seen >= ends[:, None, None])) & (distance < 2)
    return hidden[:, None]
