"""Specification: each feature map as its paper writes it.

All take ``x (B, H, T, D)``, act on each step separately, and compute and return fp32 for half precision.
"""

import math

import torch
from torch import Tensor

from ..dtypes import accumulation_dtype
from .shared import LARGEST_EXPONENT, LARGEST_KEY, SMALLEST_NORM


def elu_features(x: Tensor) -> Tensor:
    """``elu(x) + 1``: x + 1 above 0, exp(x) below (arXiv 2006.16236, equation 7): ``(B, H, T, D)``."""
    x = x.to(accumulation_dtype(x))
    above = x > 0
    return torch.where(above, x + 1, x.masked_fill(above, 0).exp())


def positive_query_features(x: Tensor, directions: Tensor) -> Tensor:
    """Positive random features of queries, divided by the largest of the step.

        phi_r(x) = exp(w_r x' - c) / sqrt(R),     x' = x / D^(1/4)

    where c is the largest ``w_r x'`` of the step. FAVOR+ (arXiv 2009.14794, lemma 1) has ``|x'|^2 / 2`` for c; the mean
    over w of its ``phi(q) . phi(k)`` is ``exp(q k / sqrt(D))``. A normalised attention does not depend on a query's c,
    so it is a constant without a gradient.

    Args:
        x: ``(B, H, T, D)``.
        directions: w, ``(R, D)``, normally distributed.

    Returns:
        ``(B, H, T, R)``.
    """
    x = x.to(accumulation_dtype(x)) / x.shape[-1] ** 0.25
    products = x @ directions.to(x.dtype).mT
    return (products - products.amax(-1, keepdim=True).detach()).exp() / math.sqrt(len(directions))


def positive_key_features(x: Tensor, directions: Tensor) -> Tensor:
    """Positive random features of keys: FAVOR+, with its exponent clamped to +-40.

        phi_r(x) = exp(clamp(w_r x' - |x'|^2 / 2)) / sqrt(R),     x' = x / D^(1/4)

    Nothing is read of other steps: the published code subtracts the largest exponent of all steps and adds 1e-4, so
    that late steps change the weights of early ones. Arguments as in :func:`positive_query_features`.
    """
    x = x.to(accumulation_dtype(x)) / x.shape[-1] ** 0.25
    exponent = x @ directions.to(x.dtype).mT - x.square().sum(-1, keepdim=True) / 2
    return exponent.clamp(-LARGEST_EXPONENT, LARGEST_EXPONENT).exp() / math.sqrt(len(directions))


def fourier_features(x: Tensor, directions: Tensor) -> Tensor:
    """Random Fourier features of the normalised step (RFA, arXiv 2103.02143, section 3.1, with the authors' scale).

        phi(x) = 0.1 [sin(W x^); cos(W x^)],     x^ = x / (|x| + 0.001)

    Features are signed, so a sum of ``phi(q) . phi(k)`` may be 0 or negative.

    Args:
        x: ``(B, H, T, D)``.
        directions: W, ``(H, R, D)``.

    Returns:
        ``(B, H, T, 2 R)``.
    """
    x = x.to(accumulation_dtype(x))
    angles = (x / (x.norm(dim=-1, keepdim=True) + SMALLEST_NORM)) @ directions.to(x.dtype).mT
    return 0.1 * torch.cat([angles.sin(), angles.cos()], dim=-1)


def hedgehog_features(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """Softmax over the learned channels of a step and their opposites (Hedgehog, arXiv 2402.04347).

        phi(x) = softmax([2 y; -2 y]),     y = W x + b

    The scale of 2 is that of flash-linear-attention. The code of LoLCATs (arXiv 2410.10254) has
    ``[softmax(y); softmax(-y)]`` instead, without b and without the 2.

    Args:
        x: ``(B, H, T, D)``.
        weight: W, ``(H, D, D)``.
        bias: b, ``(H, D)``.

    Returns:
        ``(B, H, T, 2 D)``, which sum to 1.
    """
    x = x.to(accumulation_dtype(x))
    y = 2 * (x @ weight.to(x.dtype).mT + bias.to(x.dtype)[:, None])
    return torch.cat([y, -y], dim=-1).softmax(-1)


def softmax_features(x: Tensor) -> Tensor:
    """Softmax over the channels of a query (efficient attention, arXiv 1812.01243, section 3.3): ``(B, H, T, D)``."""
    return x.to(accumulation_dtype(x)).softmax(-1)


def exponential_features(x: Tensor) -> Tensor:
    """``exp(x)`` with x clamped to +-30, whose weights over time are a softmax: the keys of the same paper."""
    return x.to(accumulation_dtype(x)).clamp(-LARGEST_KEY, LARGEST_KEY).exp()
