"""Specification: the landmarks of each sentence by its own number of real steps, and three softmaxes."""

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from ..dtypes import accumulation_dtype
from ..padding import Padding, PaddingLike
from .shared import pseudo_inverse


def nystrom_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    kernel: Tensor,
    *,
    num_landmarks: int,
    iterations: int = 6,
    padding: PaddingLike = None,
    dropout_p: float = 0.0,
) -> Tensor:
    """Nystrom's approximation of softmax attention (arXiv 2102.03902, equation 13), plus a convolution of the values.

        Q~, K~: the mean of each of m = min(L, n) consecutive blocks of the n real steps
        A = softmax(Q~ K~^T / sqrt(D))
        y = softmax(q K~^T / sqrt(D)) A^+ softmax(Q~ k^T / sqrt(D)) v  +  sum over d of kernel_d v at distance d

    The real step at position p is in block ``floor(p m / n)``. A^+ is :func:`.shared.pseudo_inverse`.

    Args:
        q, k, v: ``(B, H, T, D)``.
        kernel: ``(H, K)``, K odd: the weights of the steps at distances -(K - 1) / 2 to (K - 1) / 2.
        num_landmarks: L.
        iterations: of the pseudo-inverse.
        padding: ``(B, T)`` bool, True = padding, anywhere: not seen, and not counted in a distance.
        dropout_p: dropout probability of the weights of the landmarks for each query.

    Returns:
        ``(B, H, T, D)`` in the dtype of ``q``; everything is in fp32 for half precision. Undefined, but finite, at
        padding.
    """
    padding_mask = Padding.of(padding).mask
    dtype, steps = accumulation_dtype(q), q.shape[2]
    result_dtype, (q, k, v) = q.dtype, (x.to(dtype) for x in (q, k, v))
    padded = Padding(padding_mask).with_mask(q.shape[0], steps, q.device).existing_mask
    position, lengths = Padding(padded).positions, (~padded).sum(1, keepdim=True)
    count = lengths.clamp(1, num_landmarks)
    landmark = torch.arange(min(num_landmarks, steps), device=q.device)
    block = position * count // lengths.clamp(min=1)
    members = (block[:, None] == landmark[:, None]) & ~padded[:, None]  # (B, M, T)
    means = (members / members.sum(-1, keepdim=True).clamp(min=1).to(dtype))[:, None].to(dtype)
    unused = (landmark >= count)[:, None, None]  # (B, 1, 1, M)

    def softmax(queries: Tensor, keys: Tensor, masked: Tensor) -> Tensor:
        scores = queries @ keys.mT / math.sqrt(q.shape[-1])
        return scores.masked_fill(masked, torch.finfo(dtype).min).softmax(-1).masked_fill(masked, 0)

    q_means, k_means = means @ q, means @ k
    identity = torch.diag_embed(unused[:, :, 0].to(dtype))  # of unused landmarks
    between = softmax(q_means, k_means, unused).masked_fill(unused.mT, 0) + identity
    read = softmax(q_means, k, padded[:, None, None]).masked_fill(unused.mT, 0) @ v
    weights = F.dropout(softmax(q, k_means, unused), dropout_p)

    reach = kernel.shape[1] // 2
    distance = position[:, None] - position[:, :, None]  # (B, of the output, of the value)
    near = (distance.abs() <= reach) & ~padded[:, None]
    nearby = kernel.to(dtype)[:, distance.clamp(-reach, reach) + reach].transpose(0, 1) * near[:, None]
    return (weights @ pseudo_inverse(between, iterations) @ read + nearby @ v).to(result_dtype)
