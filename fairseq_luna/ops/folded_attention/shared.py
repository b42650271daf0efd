"""A linear map as an argument."""

from typing import NamedTuple

from torch import Tensor


class Affine(NamedTuple):
    """Weight and bias of a ``torch.nn.Linear``."""

    weight: Tensor  # (C, C), output first
    bias: Tensor | None  # (C,)
