"""Training form: torch's fused attention."""

from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.backends import cuda
from torch.nn.attention import SDPBackend, sdpa_kernel

from ..dtypes import accumulation_dtype, full_precision
from ..masked_softmax import masked_softmax, unseen_keys
from ..once_per_batch import once_per_batch

# On a GPU torch copies a mask whose strides are not multiples of this.
ALIGNMENT = 16
MOST_HEADS = 2**16  # a kernel's grid has fewer in this dimension


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
        padding_mask: ``(B, S)`` bool, True = padding.
        bias: added to the scores, broadcastable to ``(B, H, T, S)``; may need a gradient.
        dropout_p: dropout probability of the weights.
        need_weights: also return the weights, which costs a T x S tensor. The output is the same.

    Returns:
        ``(B, H, T, E)`` in the dtype of ``q`` (under autocast in autocast's), and the weights ``(B, H, T, S)`` before
        dropout or None.
    """
    source = source_of(k, v, padding_mask)
    return read_source(q, source, bias=bias, dropout_p=dropout_p, need_weights=need_weights)


class Source(NamedTuple):
    """What queries read, in any number of calls: the mask is converted once."""

    key: Tensor  # (B, H, S, D)
    value: Tensor | None  # (B, H, S, E); None = the keys
    added: Tensor | None  # (B, 1, 1, S), to the scores: :func:`padding_scores`


def source_of(k: Tensor, v: Tensor, padding_mask: Tensor | None) -> Source:
    """The source with these arguments of :func:`softmax_attention`."""
    return Source(k, None if v is k else v, padding_scores(padding_mask, k.dtype))


def read_source(
    q: Tensor, source: Source, *, bias: Tensor | None = None, dropout_p: float = 0.0, need_weights: bool = False
) -> tuple[Tensor, Tensor | None]:
    """:func:`softmax_attention` to a ``source``."""
    k, v, added = source
    value = k if v is None else v
    if bias is None:
        out = _attend(q, k, value, added, dropout_p=dropout_p)
    else:
        bias = bias.to(q.dtype)
        mask = bias if added is None else bias + added
        out = scaled_dot_product_attention(q, k, value, attn_mask=mask, dropout_p=dropout_p)
    return out, _weights(q, k, added, bias) if need_weights else None


def causal_softmax_attention(
    q: Tensor, k: Tensor, v: Tensor, *, padding_mask: Tensor | None = None, dropout_p: float = 0.0
) -> Tensor:
    """Attention of all steps to themselves and the earlier ones, or of the newest one.

    Args:
        q: ``(B, H, T, D)``; T is S, or 1: the newest step.
        k, v: ``(B, H, S, D)``.
        padding_mask, dropout_p: as of :func:`softmax_attention`.

    Returns:
        ``(B, H, T, D)`` in the dtype of ``q``; 0 where no step is seen.
    """
    steps = q.shape[2]
    if padding_mask is None and steps == k.shape[2]:
        return _attend(q, k, v, None, is_causal=True, dropout_p=dropout_p)
    if steps == 1:
        return softmax_attention(q, k, v, padding_mask=padding_mask, dropout_p=dropout_p)[0]
    mask = _scores_of_unseen(padding_mask, steps, q.dtype, q.device)
    return scaled_dot_product_attention(q, k, v, attn_mask=mask, dropout_p=dropout_p)


def additive_mask(hidden: Tensor, dtype: torch.dtype) -> Tensor:
    """What is added to scores: -inf where ``hidden``, bool of any shape, is True, otherwise 0."""
    return _aligned_zeros(hidden, hidden.shape, dtype).masked_fill_(hidden, float("-inf"))


def _aligned_zeros(like: Tensor, shape: torch.Size, dtype: torch.dtype) -> Tensor:
    """A mask of ``shape`` on the device of ``like``, with the strides that a GPU's kernels need."""
    *others, places = shape
    stored = -(-places // ALIGNMENT) * ALIGNMENT if like.is_cuda else places
    return like.new_zeros(*others, stored, dtype=dtype)[..., :places]


@once_per_batch
def padding_scores(padding_mask: Tensor | None, dtype: torch.dtype) -> Tensor | None:
    """:func:`additive_mask` of keys, ``(B, 1, 1, S)`` for ``padding_mask (B, S)`` bool, or None for None.

    torch would make it of the bool mask at every call.
    """
    return None if padding_mask is None else additive_mask(padding_mask[:, None, None], dtype)


@once_per_batch
def _scores_of_unseen(padding_mask: Tensor | None, steps: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    return additive_mask(unseen_keys(padding_mask, steps, device), dtype)


def _attend(q: Tensor, k: Tensor, v: Tensor, added: Tensor | None, **options: Any) -> Tensor:
    """torch's attention; in training, of one sentence that has the heads of all, if that needs no copies.

    torch's kernels write results and gradients with the sentences first and the steps second. So with one sentence the
    steps are first, as in fairseq's layers, which otherwise copy each result and gradient.
    """
    training = torch.is_grad_enabled() and not torch.compiler.is_compiling()
    if not (training and _evenly_spaced_heads(q, k, v)):
        return scaled_dot_product_attention(q, k, v, attn_mask=added, **options)
    sentences, heads = q.shape[:2]
    q, k, v = (x.flatten(0, 1)[None] for x in (q, k, v))
    mask = None if added is None else _scores_of_each_head(added, heads)
    y = scaled_dot_product_attention(q, k, v, attn_mask=mask, **options)
    return y.unflatten(1, (sentences, heads)).squeeze(0)


def _evenly_spaced_heads(q: Tensor, k: Tensor, v: Tensor) -> bool:
    """Whether the heads of all sentences are one dimension of each tensor in memory, and not too many."""
    sentences, heads = q.shape[:2]
    return sentences * heads < MOST_HEADS and all(x.stride(0) == heads * x.stride(1) for x in (q, k, v))


@once_per_batch
def _scores_of_each_head(added: Tensor, heads: int) -> Tensor:
    """``(B, 1, 1, S)`` to ``(1, B H, 1, S)``."""
    of_each = added.expand(-1, heads, -1, -1)
    return _aligned_zeros(added, of_each.shape, added.dtype).copy_(of_each).flatten(0, 1)[None]


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


def _weights(q: Tensor, k: Tensor, added: Tensor | None, bias: Tensor | None) -> Tensor:
    padded = None if added is None else added.isneginf()
    dtype = accumulation_dtype(q)
    with full_precision(q):
        scores = (q.to(dtype) * q.shape[-1] ** -0.5) @ k.to(dtype).mT
        if bias is not None:
            scores = scores + bias
    return masked_softmax(scores, padded, dim=-1).to(q.dtype)
