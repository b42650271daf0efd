"""Scaled dot product attention with padded keys."""

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.backends import cuda
from torch.nn.attention import SDPBackend, sdpa_kernel

from .dtypes import accumulation_dtype, full_precision
from .masked_softmax import masked_softmax, unseen_keys
from .padding import Padding, PaddingLike, additive_mask, aligned_zeros, computed_once


def softmax_attention_reference(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    padding: PaddingLike = None,
    bias: Tensor | None = None,
    dropout_p: float = 0.0,
    need_weights: bool = False,
) -> tuple[Tensor, Tensor | None]:
    """Attention of every query to every key that is not padding (arXiv 1706.03762, equation 1).

    Args:
        q: ``(B, H, T, D)``.
        k: ``(B, H, S, D)``.
        v: ``(B, H, S, E)``.
        padding: ``(B, S)`` bool, True = padding: the key is not attended to. If all keys are padding, weights
            and output are zero.
        bias: added to the scores, broadcastable to ``(B, H, T, S)``.
        dropout_p: dropout probability of the weights.
        need_weights: also return the weights.

    Returns:
        ``(B, H, T, E)`` and the weights ``(B, H, T, S)`` before dropout or None, in the dtype of ``q``. The softmax
        is computed in fp32 if ``q`` is half precision.
    """
    padding_mask = Padding.of(padding).mask
    dtype = accumulation_dtype(q)
    scores = q.to(dtype) @ k.to(dtype).transpose(-1, -2) / math.sqrt(q.shape[-1])
    if bias is not None:
        scores = scores + bias
    if padding_mask is not None:
        scores = scores.masked_fill(padding_mask[:, None, None, :], -torch.inf)
        nothing = padding_mask.all(dim=1)[:, None, None, None]
        weights = scores.masked_fill(nothing, 0).softmax(-1).masked_fill(nothing, 0)
    else:
        weights = scores.softmax(-1)
    out = F.dropout(weights, dropout_p) @ v.to(dtype)
    return out.to(q.dtype), weights.to(q.dtype) if need_weights else None


MOST_HEADS = 2**16  # the grid of a CUDA kernel is smaller than this in the dimension of heads


def softmax_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    padding: PaddingLike = None,
    bias: Tensor | None = None,
    dropout_p: float = 0.0,
    need_weights: bool = False,
) -> tuple[Tensor, Tensor | None]:
    """The same function as :func:`softmax_attention_reference`, by torch's fused attention.

    The bias may need a gradient. ``need_weights`` costs a T x S tensor and does not change the output. Under autocast
    the result is in autocast's dtype.
    """
    padding = Padding.of(padding)
    if bias is None:
        out = _fused_attention(q, k, v, padding, dropout_p=dropout_p)
    else:
        bias, added = bias.to(q.dtype), padding.scores(k.dtype)
        mask = bias if added is None else bias + added
        out = scaled_dot_product_attention(q, k, v, attn_mask=mask, dropout_p=dropout_p)
    return out, _weights(q, k, padding, bias) if need_weights else None


def causal_softmax_attention(
    q: Tensor, k: Tensor, v: Tensor, *, padding: PaddingLike = None, dropout_p: float = 0.0
) -> Tensor:
    """Attention of all steps to themselves and the earlier ones, or of the newest one.

    Args:
        q: ``(B, H, T, D)``; T is S, or 1: the newest step.
        k, v: ``(B, H, S, D)``.
        padding, dropout_p: as in :func:`softmax_attention_reference`.

    Returns:
        ``(B, H, T, D)`` in the dtype of ``q``; 0 where no step is seen.
    """
    padding = Padding.of(padding)
    steps = q.shape[2]
    if padding.mask is None and steps == k.shape[2]:
        return _fused_attention(q, k, v, padding, is_causal=True, dropout_p=dropout_p)
    if steps == 1:
        return softmax_attention(q, k, v, padding=padding, dropout_p=dropout_p)[0]
    mask = _scores_of_unseen(padding, steps, q.dtype, q.device)
    return scaled_dot_product_attention(q, k, v, attn_mask=mask, dropout_p=dropout_p)


@computed_once
def _scores_of_unseen(padding: Padding, steps: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    return additive_mask(unseen_keys(padding, steps, device), dtype)


def _fused_attention(q: Tensor, k: Tensor, v: Tensor, padding: Padding, **options: Any) -> Tensor:
    """torch's attention; in training, of one sentence that has the heads of all sentences, if this needs no copies.

    torch's kernels write results and gradients with the sentences first and the steps second. With a single sentence
    the steps come first, as in fairseq's layers, which otherwise copy each result and gradient.
    """
    training = torch.is_grad_enabled() and not torch.compiler.is_compiling()
    if not (training and _can_join_heads(q, k, v)):
        return scaled_dot_product_attention(q, k, v, attn_mask=padding.scores(k.dtype), **options)
    sentences, heads = q.shape[:2]
    mask = _scores_of_each_head(padding, heads, k.dtype)
    q, k, v = (x.flatten(0, 1)[None] for x in (q, k, v))
    y = scaled_dot_product_attention(q, k, v, attn_mask=mask, **options)
    return y.unflatten(1, (sentences, heads)).squeeze(0)


def _can_join_heads(q: Tensor, k: Tensor, v: Tensor) -> bool:
    """Whether the heads of all sentences are one dimension of each tensor in memory, and not too many."""
    sentences, heads = q.shape[:2]
    return sentences * heads < MOST_HEADS and all(x.stride(0) == heads * x.stride(1) for x in (q, k, v))


@computed_once
def _scores_of_each_head(padding: Padding, heads: int, dtype: torch.dtype) -> Tensor | None:
    """:meth:`.Padding.scores` of all heads of a batch, ``(1, B H, 1, S)``."""
    added = padding.scores(dtype)
    if added is None:
        return None
    per_head = added.expand(-1, heads, -1, -1)
    return aligned_zeros(added, per_head.shape, dtype).copy_(per_head).flatten(0, 1)[None]


def scaled_dot_product_attention(q: Tensor, k: Tensor, v: Tensor, **options: Any) -> Tensor:
    """torch's function of this name, with any of its kernels except cuDNN's, which it prefers on GPUs such as the H100.

    cuDNN's gradients are NaN for some lengths with a mask (pytorch issue 196678), and cuDNN builds a plan for every
    shape, while the shapes of fairseq's batches change at every update. Kernels that the user disabled stay disabled.
    """
    if q.device.type != "cuda" or not cuda.cudnn_sdp_enabled():
        return F.scaled_dot_product_attention(q, k, v, **options)
    enabled = {
        SDPBackend.FLASH_ATTENTION: cuda.flash_sdp_enabled(),
        SDPBackend.EFFICIENT_ATTENTION: cuda.mem_efficient_sdp_enabled(),
        SDPBackend.MATH: cuda.math_sdp_enabled(),
    }
    others = [backend for backend, is_enabled in enabled.items() if is_enabled]
    with sdpa_kernel(others or [SDPBackend.CUDNN_ATTENTION]):
        return F.scaled_dot_product_attention(q, k, v, **options)


def _weights(q: Tensor, k: Tensor, padding: Padding, bias: Tensor | None) -> Tensor:
    padded = None if padding.mask is None else padding.mask[:, None, None]
    dtype = accumulation_dtype(q)
    with full_precision(q):
        scores = (q.to(dtype) * q.shape[-1] ** -0.5) @ k.to(dtype).mT
        if bias is not None:
            scores = scores + bias
    return masked_softmax(scores, padded, dim=-1).to(q.dtype)
