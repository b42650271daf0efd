"""The norm of queries and keys, and the mask, in all forms."""

import torch
from torch import Tensor


def normalised(x: Tensor) -> Tensor:
    """``x`` over its L2 norm in the last dimension; its square is at least 1e-6, as in the published code."""
    return x * torch.rsqrt(x.square().sum(-1, keepdim=True) + 1e-6)


def without_padding(padding_mask: Tensor | None, *gates: Tensor) -> tuple[Tensor, ...]:
    """Each of ``gates (B, H, T)`` with 0 at padding: then the step leaves the state as it is."""
    if padding_mask is None:
        return gates
    return tuple(gate.masked_fill(padding_mask[:, None], 0) for gate in gates)
