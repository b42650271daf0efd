"""Scores, weights and activations of the pack and unpack attention.

A softmax over time would depend on later steps; the pack activations depend on one score each, and are 1 at score 0.
"""

import math
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from ..feature_maps import elu_features

LN_2 = math.log(2.0)


def softplus(scores: Tensor) -> Tensor:
    """``log(1 + exp(ln 2 * s)) / ln 2``."""
    if torch.compiler.is_compiling():
        # The gradient of a graph has the layout of the scores, which is not that of torch 2.13 if they are transposed.
        scores = scores.contiguous()
    # Above the threshold torch returns s itself, which is exact in fp64 from 40 on.
    return F.softplus(scores, beta=LN_2, threshold=40.0)


def elu(scores: Tensor) -> Tensor:
    """``elu(s) + 1``: exp(s) below 0, s + 1 above."""
    return elu_features(scores).to(scores.dtype)


PACK_ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {"softplus": softplus, "elu": elu}


def pack_activation(name: str) -> Callable[[Tensor], Tensor]:
    """The activation called ``name``; ValueError if there is none."""
    if name not in PACK_ACTIVATIONS:
        raise ValueError(f"activation {name}: choose one of {', '.join(PACK_ACTIVATIONS)}")
    return PACK_ACTIVATIONS[name]


def pack_scores(pq: Tensor, pk: Tensor) -> Tensor:
    """``pq pk_t / sqrt(D)`` for slots ``pq (B, H, L, D)`` and steps ``pk (B, H, T, D)``: ``(B, H, T, L)``."""
    return pk @ scaled(pq).mT


def scaled(pq: Tensor) -> Tensor:
    """``pq / sqrt(D)``."""
    return pq * pq.shape[-1] ** -0.5


def pack_weights(pq: Tensor, pk: Tensor, activation: str) -> Tensor:
    """The weight of each step ``pk (B, H, T, D)`` in each slot ``pq (B, H, L, D)``: ``(B, H, T, L)``."""
    return pack_activation(activation)(pack_scores(pq, pk))


def unpack_weights(scores: Tensor, added: Tensor | None, *, scale: float = 1.0) -> Tensor:
    """Softmax of ``scale * scores`` over the slots that are not padding.

    Args:
        scores: ``q_t S_t (B, H, T, L)``; in fp32 if q is half precision, because rounded scores and a softmax in half
            precision cause most of the error in the gradients of q and k.
        added: ``(B, 1, 1, L)``, :meth:`~..padding.Padding.scores` of the slots.
        scale: what the scores were not yet multiplied by.

    Returns:
        ``(B, H, T, L)``.
    """
    if added is None:
        return (scores if scale == 1 else scores * scale).softmax(-1)
    return torch.add(added, scores, alpha=scale).softmax(-1)
