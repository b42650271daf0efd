"""Training form: real steps moved together, so that places are positions; shared weights, or torch's attention."""

import torch
from torch import Tensor

from ..dropout import drop
from ..dtypes import accumulation_dtype, full_precision
from ..masked_softmax import unseen_keys
from ..padding import Padding, PaddingLike, computed_once
from ..softmax_attention import scaled_dot_product_attention


def synthesizer_attention(
    scores: Tensor,
    v: Tensor,
    *,
    padding: PaddingLike = None,
    causal: bool = False,
    dropout_p: float = 0.0,
) -> Tensor:
    """Attention with given scores; specified by :func:`.naive.synthesizer_attention`.

    With scores for all sentences, the weights too are made once for the batch if it is causal or has no padding.

    Args:
        scores: ``(B, H, T, T)`` or ``(1, H, T, T)``, rows and columns by position among the real steps.
        v: ``(B, H, T, D)``.
        padding: of the steps, anywhere.
        causal: without the later steps.
        dropout_p: dropout probability of the weights; a batch that shares its weights drops the same ones.

    Returns:
        ``(B, H, T, D)`` in the dtype of ``v``; zero at padding.
    """
    padding = Padding.of(padding)
    dtype = accumulation_dtype(v)
    hidden = None if causal or padding.mask is None else _behind(padding).existing_mask[:, None, None]
    if causal:  # behind the real steps there is only padding, which none of them sees
        hidden = unseen_keys(Padding(), v.shape[2], v.device)
    with full_precision(v):
        scores = scores.to(dtype)
        if hidden is not None:
            scores = scores.masked_fill(hidden, -torch.inf)
        weights = drop(scores.softmax(-1), dropout_p)
        y = weighted_sums(weights, padding.pack_left(v).to(dtype)).to(v.dtype)
    return padding.restore_places(y)


def position_attention(
    q: Tensor,
    keys: Tensor,
    v: Tensor,
    *,
    padding: PaddingLike = None,
    causal: bool = False,
    dropout_p: float = 0.0,
) -> Tensor:
    """Attention to learned keys of positions, without a T x T tensor, as :func:`.naive.position_attention` does it."""
    padding = Padding.of(padding)
    behind = Padding() if causal or padding.mask is None else _behind(padding)
    y = scaled_dot_product_attention(
        padding.pack_left(q),
        keys.to(q.dtype).expand(q.shape[0], -1, -1, -1),
        padding.pack_left(v),
        attn_mask=behind.scores(q.dtype),
        dropout_p=dropout_p,
        is_causal=causal,
        scale=1.0,
    )
    return padding.restore_places(y)


@computed_once
def _behind(padding: Padding) -> Padding:
    """The same with the real steps moved together: the positions behind them are padding."""
    lengths = padding.lengths.clamp(min=1)  # a softmax over nothing is NaN
    return Padding(torch.arange(padding.existing_mask.shape[1], device=lengths.device) >= lengths[:, None])


def weighted_sums(weights: Tensor, v: Tensor) -> Tensor:
    """``weights (B or 1, H, T, S)`` times ``v (B, H, S, D)``: ``(B, H, T, D)``; weights of all sentences once."""
    if weights.shape[0] == v.shape[0]:
        return weights @ v
    batch, heads, steps, size = v.shape
    of_heads = v.permute(1, 2, 0, 3).reshape(heads, steps, batch * size)
    return (weights[0] @ of_heads).unflatten(-1, (batch, size)).permute(2, 0, 1, 3)
