"""Training form: torch's fused attention."""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.backends import cuda
from torch.nn.attention import SDPBackend, sdpa_kernel

from ..dtypes import accumulation_dtype, full_precision
from ..masked_softmax import masked_softmax
from ..once_per_batch import once_per_batch

# On a GPU torch copies a mask whose strides are not multiples of this.
ALIGNMENT = 16


def softmax_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    padding_mask: Tensor | None = None,
    bias: Tensor | None = None,
    dropout_p: float = 0.0,
    need_weights: bool = False,
) -> tuple[Tensor, Tensor | None]:
    """Attention of every query to every key that is not padding; specified by :func:`.naive.softmax_attention`.

    Args:
        q: ``(B, H, T, D)``.
        k: ``(B, H, S, D)``.
        v: ``(B, H, S, E)``.
        padding_mask: ``(B, S)`` bool, True = padding, or :func:`additive_mask` of it.
        bias: added to the scores, broadcastable to ``(B, H, T, S)``; may need a gradient.
        dropout_p: dropout probability of the weights.
        need_weights: also return the weights, which costs a T x S tensor. The output is the same.

    Returns:
        ``(B, H, T, E)`` in the dtype of ``q`` (under autocast in autocast's), and the weights ``(B, H, T, S)`` before
        dropout or None.
    """
    mask = None
    if padding_mask is not None:
        mask = padding_mask if padding_mask.is_floating_point() else mask_of_scores(padding_mask, q.dtype)
        mask = mask[:, None, None, :]
        if mask.is_cuda:
            mask = mask.as_strided(mask.shape, (mask.stride(0), 0, 0, 1))  # aligned, if its rows are
    added = mask
    if bias is not None:
        bias = bias.to(q.dtype)
        added = bias if mask is None else bias + mask
    out = scaled_dot_product_attention(q, k, v, attn_mask=added, dropout_p=dropout_p)
    return out, _weights(q, k, mask, bias) if need_weights else None


def additive_mask(padding_mask: Tensor, *, like: Tensor) -> Tensor:
    """What is added to scores: 0 for real places and -inf for padding, in the dtype of ``like``."""
    *others, places = padding_mask.shape
    mask = like.new_zeros(*others, -(-places // ALIGNMENT) * ALIGNMENT if like.is_cuda else places)
    return mask[..., :places].masked_fill_(padding_mask, float("-inf"))


@once_per_batch
def mask_of_scores(padding_mask: Tensor, dtype: torch.dtype) -> Tensor:
    """:func:`additive_mask` in ``dtype``. torch makes it of a bool mask at every call."""
    return additive_mask(padding_mask, like=padding_mask.new_empty(0, dtype=dtype))


def scaled_dot_product_attention(q: Tensor, k: Tensor, v: Tensor, **options: Any) -> Tensor:
    """torch's function of this name, with any of its kernels but cuDNN's, which it prefers on GPUs such as the H100.

    cuDNN's gradients are NaN for some lengths with a mask (pytorch issue 196678), and cuDNN builds a plan for every
    shape, where the shapes of fairseq's batches change at every update. Kernels that the user disabled stay disabled.
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


def _weights(q: Tensor, k: Tensor, mask: Tensor | None, bias: Tensor | None) -> Tensor:
    padded = None if mask is None else mask.isneginf()
    dtype = accumulation_dtype(q)
    with full_precision(q):
        scores = (q.to(dtype) * q.shape[-1] ** -0.5) @ k.to(dtype).mT
        if bias is not None:
            scores = scores + bias
    return masked_softmax(scores, padded, dim=-1).to(q.dtype)
