"""The norm of queries and keys, and the mask, in all forms."""

import torch
from torch import Tensor


def inverse_norm(x: Tensor) -> Tensor:
    """1 over the L2 norm of ``x`` in its last dimension, whose square is at least 1e-6, as in the published code."""
    if torch.is_grad_enabled():
        squares = x.square().sum(-1, keepdim=True)
    else:  # faster, and without a second derivative at 0
        squares = torch.linalg.vector_norm(x, dim=-1, keepdim=True).square()
    return torch.rsqrt(squares + 1e-6)


def without_padding(padding_mask: Tensor | None, *gates: Tensor) -> tuple[Tensor, ...]:
    """Each of ``gates (B, H, T)`` with 0 at padding: then the step leaves the state as it is."""
    if padding_mask is None:
        return gates
    return tuple(gate.masked_fill(padding_mask[:, None], 0) for gate in gates)
