"""Outputs of functions with a gradient of their own."""

import torch
from torch import Tensor


def written_in_place(x: Tensor) -> Tensor:
    """``x``, the result of an in-place operator, as an output of a ``torch.autograd.Function``.

    torch.compile of torch 2.11 makes the gradient of such an output zero, silently, unless the output is another view
    of the same memory: docs/reliability.md.
    """
    return x.view_as(x) if torch.compiler.is_compiling() else x
