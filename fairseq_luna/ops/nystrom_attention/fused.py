"""Training form: blocks of all sentences at once, torch's attention to and from them, torch's convolution."""

import torch
import torch.nn.functional as F
from torch import Tensor

from ..block_partition import cut_by_number, reduce_blocks, same_blocks, to_blocks
from ..dtypes import accumulation_dtype, full_precision
from ..masked_softmax import masked_softmax
from ..padding import Padding, PaddingLike, read_steps
from ..softmax_attention import softmax_attention
from .shared import pseudo_inverse

# A product with a T x T matrix is faster than torch's convolution of so few steps. A recorded graph is for any number.
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
    """Attention through landmarks, linear in T; specified by :func:`.naive.nystrom_attention`.

    Args:
        q, k, v: ``(B, H, T, D)``.
        kernel: ``(H, K)``, K odd.
        num_landmarks: L.
        iterations: of the pseudo-inverse.
        padding: of the steps.
        dropout_p: dropout probability of the weights of the landmarks for each query.

    Returns:
        ``(B, H, T, D)`` in the dtype of ``q``.
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
    """The attention among landmarks, ``(B, H, M, M)``; for those of ``unused (B, M)`` the identity."""
    scores = q_means @ k_means.mT * q_means.shape[-1] ** -0.5
    weights = masked_softmax(scores, unused[:, None, None], dim=-1)
    identity = torch.diag_embed(unused.to(weights.dtype))[:, None]
    return weights.masked_fill(unused[:, None, :, None], 0) + identity


def convolution_of_real_steps(v: Tensor, kernel: Tensor, padding: PaddingLike) -> Tensor:
    """``v (B, H, T, D)``, convolved over its real steps with the ``kernel (H, K)`` of each head."""
    padding = Padding.of(padding)
    packed = padding.pack_left(v)
    if not torch.compiler.is_compiling() and v.shape[2] <= MOST_STEPS_AS_A_MATRIX:
        convolved = torch.einsum("hts,bhsd->bhtd", _matrix_of_distances(kernel, v.shape[2]), packed)
    else:
        convolved = F.conv2d(packed, kernel[:, None, :, None], padding=(kernel.shape[1] // 2, 0), groups=len(kernel))
    return convolved if padding.mask is None else read_steps(convolved, padding.positions)


def _matrix_of_distances(kernel: Tensor, steps: int) -> Tensor:
    """The weight of step s for step t by their distance, ``(H, T, T)``, for ``kernel (H, K)``."""
    reach = kernel.shape[1] // 2
    step = torch.arange(steps, device=kernel.device)
    distance = step - step[:, None]
    weights = kernel.index_select(1, (distance.clamp(-reach, reach) + reach).flatten()).view(len(kernel), steps, steps)
    return weights.masked_fill(distance.abs() > reach, 0)
