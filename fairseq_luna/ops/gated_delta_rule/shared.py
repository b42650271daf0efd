"""The norm of queries and keys."""

import torch
from torch import Tensor


def inverse_norm(x: Tensor) -> Tensor:
    """1 over the L2 norm of ``x`` in its last dimension, whose square is at least 1e-6, as in the published code."""
    if torch.is_grad_enabled():
        squares = x.square().sum(-1, keepdim=True)
    else:  # faster, and without a second derivative at 0
        squares = torch.linalg.vector_norm(x, dim=-1, keepdim=True).square()
    return torch.rsqrt(squares + 1e-6)
