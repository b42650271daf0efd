"""Training form: few passes over the features, and no exponential that overflows.

Results are in fp32 for half precision.
"""

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from ..dtypes import accumulation_dtype, full_precision
from .shared import LARGEST_EXPONENT, LARGEST_KEY, SMALLEST_NORM


def elu_features(x: Tensor) -> Tensor:
    """``elu(x) + 1``; specified by :func:`.naive.elu_features`. torch's elu minus 1 loses all digits at -17."""
    x = x.to(accumulation_dtype(x))
    return x.clamp(max=0).exp() + x.relu()


def positive_query_features(x: Tensor, directions: Tensor) -> Tensor:
    """Positive random features of queries; specified by :func:`.naive.positive_query_features`: ``(B, H, T, R)``."""
    exponent = _projected(x, directions, scale=x.shape[-1] ** -0.25)
    largest = exponent.detach().amax(-1, keepdim=True)
    return exponent.sub_(largest + math.log(len(directions)) / 2).exp_()


def positive_key_features(x: Tensor, directions: Tensor) -> Tensor:
    """Positive random features of keys; specified by :func:`.naive.positive_key_features`: ``(B, H, T, R)``."""
    shift = math.log(len(directions)) / 2
    size = x.shape[-1] ** -0.25
    half_norm = (x.to(accumulation_dtype(x)) * size).square().sum(-1, keepdim=True) / 2
    exponent = _projected(x, directions, scale=size).add_(-(half_norm + shift))
    # A clamp with a cheaper gradient.
    return F.hardtanh(exponent, -LARGEST_EXPONENT - shift, LARGEST_EXPONENT - shift).exp_()


def fourier_features(x: Tensor, directions: Tensor) -> Tensor:
    """Random Fourier features; specified by :func:`.naive.fourier_features`: ``(B, H, T, 2 R)``."""
    x = x.to(accumulation_dtype(x))
    length = torch.linalg.vector_norm(x, dim=-1, keepdim=True) + SMALLEST_NORM
    return _SinAndCos.apply(_projected(x * length.reciprocal(), directions))


def hedgehog_features(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """Softmax over learned channels and their opposites; see :func:`.naive.hedgehog_features`: ``(B, H, T, 2 D)``."""
    x = x.to(accumulation_dtype(x))
    with full_precision(x):
        # Not a product by broadcasting, which would copy the weight for every sentence.
        y = torch.einsum("bhtd,hed->bhte", x, 2 * weight.to(x.dtype)) + 2 * bias.to(x.dtype)[:, None]
    return F.softmax(torch.cat([y, -y], dim=-1), dim=-1)


def softmax_features(x: Tensor) -> Tensor:
    """Softmax over the channels; specified by :func:`.naive.softmax_features`: ``(B, H, T, D)``."""
    return F.softmax(x, dim=-1, dtype=accumulation_dtype(x))


def exponential_features(x: Tensor) -> Tensor:
    """``exp(x)``, x clamped; specified by :func:`.naive.exponential_features`: ``(B, H, T, D)``."""
    return x.to(accumulation_dtype(x)).clamp(-LARGEST_KEY, LARGEST_KEY).exp()


def _projected(x: Tensor, directions: Tensor, *, scale: float = 1.0) -> Tensor:
    """``scale x directions^T``, in fp32 for half precision."""
    dtype = accumulation_dtype(x)
    with full_precision(x):
        return x.to(dtype) @ (directions.to(dtype) * scale).mT


class _SinAndCos(torch.autograd.Function):
    """``0.1 [sin(x); cos(x)]``: each half is the derivative of the other, where autograd would compute both again."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor) -> Tensor:
        return torch.cat([x.sin(), x.cos()], dim=-1).mul_(0.1)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor], output: Tensor) -> None:
        ctx.save_for_backward(output)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        (out,) = ctx.saved_tensors
        (of_sin, of_cos), (sin, cos) = gradient.chunk(2, dim=-1), out.chunk(2, dim=-1)
        return torch.addcmul(of_sin * cos, of_cos, sin, value=-1)
