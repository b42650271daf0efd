"""Features of queries and keys: functions phi for which ``phi(q) . phi(k)`` replaces a softmax's weight.

All take ``x (B, H, T, D)``, act on each step separately, and compute and return fp32 for half precision. The training
forms make few passes over the features, and none of their exponentials overflows.
"""

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from .dtypes import accumulation_dtype, full_precision
from .function_outputs import written_in_place

LARGEST_EXPONENT = 40.0  # the exponent of a positive feature of a key is clamped to +- this


LARGEST_KEY = 30.0  # the exponent of an exponential feature is clamped to +- this


SMALLEST_NORM = 1e-3  # added to the norm that random Fourier features divide by


def elu_features_reference(x: Tensor) -> Tensor:
    """``elu(x) + 1``: x + 1 above 0, exp(x) below (arXiv 2006.16236, equation 7): ``(B, H, T, D)``."""
    x = x.to(accumulation_dtype(x))
    above = x > 0
    return torch.where(above, x + 1, x.masked_fill(above, 0).exp())


def positive_query_features_reference(x: Tensor, directions: Tensor) -> Tensor:
    """Positive random features of queries, divided by the largest of the step.

        phi_r(x) = exp(w_r x' - c) / sqrt(R),     x' = x / D^(1/4)

    where c is the largest ``w_r x'`` of the step. FAVOR+ (arXiv 2009.14794, lemma 1) has ``|x'|^2 / 2`` for c; the mean
    over w of its ``phi(q) . phi(k)`` is ``exp(q k / sqrt(D))``. A normalized attention does not depend on a query's c,
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


def positive_key_features_reference(x: Tensor, directions: Tensor) -> Tensor:
    """Positive random features of keys: FAVOR+, with its exponent clamped to +-40.

        phi_r(x) = exp(clamp(w_r x' - |x'|^2 / 2)) / sqrt(R),     x' = x / D^(1/4)

    No other step is read: the published code subtracts the largest exponent of all steps and adds 1e-4, so that late
    steps change the weights of early ones. Arguments as in :func:`positive_query_features_reference`.
    """
    x = x.to(accumulation_dtype(x)) / x.shape[-1] ** 0.25
    exponent = x @ directions.to(x.dtype).mT - x.square().sum(-1, keepdim=True) / 2
    return exponent.clamp(-LARGEST_EXPONENT, LARGEST_EXPONENT).exp() / math.sqrt(len(directions))


def fourier_features_reference(x: Tensor, directions: Tensor) -> Tensor:
    """Random Fourier features of the normalized step (RFA, arXiv 2103.02143, section 3.1, with the authors' scale).

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


def hedgehog_features_reference(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """Softmax over the learned channels of a step and their opposites (Hedgehog, arXiv 2402.04347).

        phi(x) = softmax([2 y; -2 y]),     y = W x + b

    flash-linear-attention has the same scale of 2. The code of LoLCATs (arXiv 2410.10254) has
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


def softmax_features_reference(x: Tensor) -> Tensor:
    """Softmax over the channels of a query (efficient attention, arXiv 1812.01243, section 3.3): ``(B, H, T, D)``."""
    return x.to(accumulation_dtype(x)).softmax(-1)


def exponential_features_reference(x: Tensor) -> Tensor:
    """``exp(x)`` with x clamped to +-30, whose weights over time are a softmax: the keys of the same paper."""
    return x.to(accumulation_dtype(x)).clamp(-LARGEST_KEY, LARGEST_KEY).exp()


def elu_features(x: Tensor) -> Tensor:
    """:func:`elu_features_reference` in another form: torch's ``elu(x) + 1`` loses all digits at -17."""
    x = x.to(accumulation_dtype(x))
    return x.clamp(max=0).exp() + x.relu()


def positive_query_features(x: Tensor, directions: Tensor) -> Tensor:
    """The same function as :func:`positive_query_features_reference`."""
    exponent = _projected(x, directions, scale=x.shape[-1] ** -0.25)
    largest = exponent.detach().amax(-1, keepdim=True)
    return exponent.sub_(largest + math.log(len(directions)) / 2).exp_()


def positive_key_features(x: Tensor, directions: Tensor) -> Tensor:
    """The same function as :func:`positive_key_features_reference`."""
    shift = math.log(len(directions)) / 2
    size = x.shape[-1] ** -0.25
    half_norm = (x.to(accumulation_dtype(x)) * size).square().sum(-1, keepdim=True) / 2
    exponent = _projected(x, directions, scale=size).add_(-(half_norm + shift))
    # A clamp with a cheaper gradient.
    return F.hardtanh(exponent, -LARGEST_EXPONENT - shift, LARGEST_EXPONENT - shift).exp_()


def fourier_features(x: Tensor, directions: Tensor) -> Tensor:
    """The same function as :func:`fourier_features_reference`."""
    x = x.to(accumulation_dtype(x))
    length = torch.linalg.vector_norm(x, dim=-1, keepdim=True) + SMALLEST_NORM
    return _SinAndCos.apply(_projected(x * length.reciprocal(), directions))


def hedgehog_features(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """The same function as :func:`hedgehog_features_reference`."""
    x = x.to(accumulation_dtype(x))
    with full_precision(x):
        # A product by broadcasting would copy the weight for every sentence.
        y = torch.einsum("bhtd,hed->bhte", x, 2 * weight.to(x.dtype)) + 2 * bias.to(x.dtype)[:, None]
    return F.softmax(torch.cat([y, -y], dim=-1), dim=-1)


def softmax_features(x: Tensor) -> Tensor:
    """The same function as :func:`softmax_features_reference`."""
    return F.softmax(x, dim=-1, dtype=accumulation_dtype(x))


def exponential_features(x: Tensor) -> Tensor:
    """The same function as :func:`exponential_features_reference`."""
    return x.to(accumulation_dtype(x)).clamp(-LARGEST_KEY, LARGEST_KEY).exp()


def _projected(x: Tensor, directions: Tensor, *, scale: float = 1.0) -> Tensor:
    """``scale x directions^T``, in fp32 for half precision."""
    dtype = accumulation_dtype(x)
    with full_precision(x):
        return x.to(dtype) @ (directions.to(dtype) * scale).mT


class _SinAndCos(torch.autograd.Function):
    """``0.1 [sin(x); cos(x)]``: each half is the derivative of the other, while autograd would compute both again."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor) -> Tensor:
        return written_in_place(torch.cat([x.sin(), x.cos()], dim=-1).mul_(0.1))

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor], output: Tensor) -> None:
        ctx.save_for_backward(output)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        (out,) = ctx.saved_tensors
        (dsin, dcos), (sin, cos) = gradient.chunk(2, dim=-1), out.chunk(2, dim=-1)
        return torch.addcmul(dsin * cos, dcos, sin, value=-1)


def orthogonal_directions(count: int, size: int, *, generator: torch.Generator) -> Tensor:
    """``count`` normally distributed vectors, orthogonal within each group of ``size``: ``(count, size)``, fp32.

    Orthogonality lowers the variance of random features (arXiv 2009.14794, section 2.4). Each vector alone is
    distributed as ``torch.randn``: uniform direction, and the norm of ``size`` normal numbers.

    Args:
        count: the number of vectors.
        size: their length.
        generator: a generator on the CPU, so that every device gets the same numbers.
    """
    groups = -(-count // size)
    device, dtype = generator.device, torch.float64
    normal = torch.randn(groups, size, size, generator=generator, device=device, dtype=dtype)
    q, r = torch.linalg.qr(normal)
    # LAPACK chooses the signs of R's diagonal, so that without this Q is not uniform among the rotations, and the
    # features are biased.
    q = q * r.diagonal(dim1=-2, dim2=-1).sign()[:, None]
    norms = torch.randn(count, size, generator=generator, device=device, dtype=dtype).norm(dim=1, keepdim=True)
    return (q.reshape(-1, size)[:count] * norms).float()
