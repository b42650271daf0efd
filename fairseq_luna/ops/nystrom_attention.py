"""Nystrom attention: softmax attention through the means of consecutive steps, the landmarks."""

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from .block_partition import cut_by_number, reduce_blocks, same_blocks, to_blocks
from .dtypes import accumulation_dtype, full_precision
from .masked_softmax import masked_softmax
from .padding import Padding, PaddingLike
from .short_convolution import is_compiled_training_step, short_convolution
from .softmax_attention import softmax_attention


def nystrom_attention_reference(
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

    The real step at position p is in block ``floor(p m / n)``. A^+ is :func:`pseudo_inverse`.

    Args:
        q, k, v: ``(B, H, T, D)``.
        kernel: ``(H, K)``, K odd: the weights of the steps at distances -(K - 1) / 2 to (K - 1) / 2.
        num_landmarks: L.
        iterations: iterations for the pseudo-inverse.
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
    identity = torch.diag_embed(unused[:, :, 0].to(dtype))  # for unused landmarks
    between = softmax(q_means, k_means, unused).masked_fill(unused.mT, 0) + identity
    read = softmax(q_means, k, padded[:, None, None]).masked_fill(unused.mT, 0) @ v
    weights = F.dropout(softmax(q, k_means, unused), dropout_p)

    reach = kernel.shape[1] // 2
    distance = position[:, None] - position[:, :, None]  # (B, of the output, of the value)
    near = (distance.abs() <= reach) & ~padded[:, None]
    nearby = kernel.to(dtype)[:, distance.clamp(-reach, reach) + reach].transpose(0, 1) * near[:, None]
    return (weights @ pseudo_inverse(between, iterations) @ read + nearby @ v).to(result_dtype)


# Up to this many steps a product with a T x T matrix is faster than torch's convolution. A graph, which is for any
# number of steps, has the convolution.
MOST_STEPS_AS_A_MATRIX = 128


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
    """The same function as :func:`nystrom_attention_reference`, linear in T.

    The blocks of all sentences are reduced at once; torch's attention reads the steps for the landmarks and the
    landmarks for the steps.
    """
    padding = Padding.of(padding)
    padded = padding.with_mask(q.shape[0], q.shape[2], q.device)
    blocks = same_blocks(padded, cut_by_number, num_landmarks)
    q_means, k_means = (reduce_blocks(x, blocks) for x in to_blocks(q, k, blocks=blocks))
    unused = blocks.empty_blocks.existing_mask
    read, _ = softmax_attention(q_means, k, v, padding=padding)
    dtype = accumulation_dtype(q)
    with full_precision(q):
        between = landmark_weights(q_means.to(dtype), k_means.to(dtype), unused)
        used = read.to(dtype).masked_fill(unused[:, None, :, None], 0)
        inner = (pseudo_inverse(between, iterations) @ used).to(v.dtype)
    y, _ = softmax_attention(q, k_means, inner, padding=blocks.empty_blocks, dropout_p=dropout_p)
    return y + convolution_of_real_steps(v, kernel, padding)


def landmark_weights(q_means: Tensor, k_means: Tensor, unused: Tensor) -> Tensor:
    """The attention among landmarks, ``(B, H, M, M)``; for the ``unused (B, M)`` ones the identity."""
    scores = q_means @ k_means.mT * q_means.shape[-1] ** -0.5
    weights = masked_softmax(scores, unused[:, None, None], dim=-1)
    identity = torch.diag_embed(unused.to(weights.dtype))[:, None]
    return weights.masked_fill(unused[:, None, :, None], 0) + identity


def convolution_of_real_steps(v: Tensor, kernel: Tensor, padding: PaddingLike) -> Tensor:
    """``v (B, H, T, D)``, convolved over its real steps with the ``kernel (H, K)`` of each head."""
    padding = Padding.of(padding)
    packed = padding.pack_left(v)
    if is_compiled_training_step():
        convolved = _convolve_heads_as_channels(packed, kernel)
    elif not torch.compiler.is_compiling() and v.shape[2] <= MOST_STEPS_AS_A_MATRIX:
        convolved = torch.einsum("hts,bhsd->bhtd", _matrix_of_distances(kernel, v.shape[2]), packed)
    else:
        convolved = F.conv2d(packed, kernel[:, None, :, None], padding=(kernel.shape[1] // 2, 0), groups=len(kernel))
    return padding.restore_order(convolved)


def _convolve_heads_as_channels(x: Tensor, kernel: Tensor) -> Tensor:
    """:func:`.short_convolution` of ``x (B, H, T, D)``, with each head as a channel of the convolution."""
    steps = x.permute(2, 0, 3, 1).flatten(1, 2)  # (T, B D, H)
    around = steps.new_zeros(kernel.shape[1] // 2, *steps.shape[1:])
    y = short_convolution(torch.cat([around, steps, around]), kernel)
    return y.unflatten(1, (x.shape[0], -1)).permute(1, 3, 0, 2)


def _matrix_of_distances(kernel: Tensor, steps: int) -> Tensor:
    """The weight of step s for step t by their distance, ``(H, T, T)``, for ``kernel (H, K)``."""
    reach = kernel.shape[1] // 2
    step = torch.arange(steps, device=kernel.device)
    distance = step - step[:, None]
    weights = kernel.index_select(1, (distance.clamp(-reach, reach) + reach).flatten()).view(len(kernel), steps, steps)
    return weights.masked_fill(distance.abs() > reach, 0)


def pseudo_inverse(matrix: Tensor, iterations: int) -> Tensor:
    """An approximation of the Moore-Penrose inverse of ``matrix (..., L, L)`` (arXiv 2102.03902, equation 11).

    The iteration starts from the transpose, divided by the largest sum of a row and the largest sum of a column. The
    rows are a softmax, so that each sums to 1. Six iterations, the paper's number, may end far from the inverse.
    """
    flat = matrix.flatten(0, -3)
    negative = -flat
    one = torch.eye(matrix.shape[-1], dtype=matrix.dtype, device=matrix.device)
    inverse = flat.mT / flat.sum(-2, keepdim=True).amax(-1, keepdim=True)
    for _ in range(iterations):
        # Z (13 - P (15 - P (7 - P))) / 4 with P = A Z, by fused products and sums.
        product = torch.bmm(negative, inverse)
        polynomial = torch.add(7 / 4 * one, product, alpha=1 / 4)
        polynomial = torch.baddbmm(15 / 4 * one, product, polynomial)
        polynomial = torch.baddbmm(13 / 4 * one, product, polynomial)
        inverse = torch.bmm(inverse, polynomial)
    return inverse.view_as(matrix)
