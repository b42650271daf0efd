"""Scores, weights and activations of the pack and unpack attention.

A softmax over time would depend on later steps; the pack activations depend on one score each, and are 1 at score 0.
"""

import math
from collections.abc import Callable

import torch.nn.functional as F
from torch import Tensor

from ..dtypes import accumulation_dtype

LN_2 = math.log(2.0)


def softplus(scores: Tensor) -> Tensor:
    """``log(1 + exp(ln 2 * s)) / ln 2``."""
    # Above the threshold torch returns s itself, which is exact in fp64 from 40 on.
    return F.softplus(scores, beta=LN_2, threshold=40.0)


def elu(scores: Tensor) -> Tensor:
    """``elu(s) + 1``: exp(s) below 0, s + 1 above."""
    return F.elu(scores) + 1


PACK_ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {"softplus": softplus, "elu": elu}


def pack_activation(name: str) -> Callable[[Tensor], Tensor]:
    """The activation called ``name``; ValueError if there is none."""
    if name not in PACK_ACTIVATIONS:
        raise ValueError(f"--luna-activation {name}: choose one of {', '.join(PACK_ACTIVATIONS)}")
    return PACK_ACTIVATIONS[name]


def pack_scores(pq: Tensor, pk: Tensor) -> Tensor:
    """``pq pk_t / sqrt(D)`` for slots ``pq (B, H, L, D)`` and steps ``pk (B, H, T, D)``: ``(B, H, T, L)``."""
    return pk @ (pq * pq.shape[-1] ** -0.5).transpose(-1, -2)


def pack_weights(pq: Tensor, pk: Tensor, activation: str) -> Tensor:
    """The weight of each step ``pk (B, H, T, D)`` in each slot ``pq (B, H, L, D)``: ``(B, H, T, L)``."""
    return pack_activation(activation)(pack_scores(pq, pk))


def scaled_queries(q: Tensor) -> Tensor:
    """``q / sqrt(D)``, in fp32 for a half precision ``q``, so that scores and unpack weights are in fp32 too.

    Otherwise rounded scores and a softmax in half precision cause most of the error in the gradients of q and k.
    """
    return q.to(accumulation_dtype(q)) * q.shape[-1] ** -0.5


def unpack_weights(scores: Tensor, packed_padding_mask: Tensor | None) -> Tensor:
    """Softmax of ``scores (B, H, T, L)`` over the slots that are not padding: the same shape."""
    if packed_padding_mask is not None:
        scores = scores.masked_fill(packed_padding_mask[:, None, None, :], float("-inf"))
    return scores.softmax(-1)
