"""The recorded files, and how far a tensor is from one in them."""

from pathlib import Path
from typing import Any

import torch
from torch import Tensor

GOLDEN = Path(__file__).parents[2] / "tests" / "golden"

# The name of what was recorded, which of its tensors, and the largest error.
Row = tuple[str, str, float]


def golden(name: str) -> Any:
    return torch.load(GOLDEN / name, weights_only=True)


def worst(ours: Tensor, theirs: Tensor) -> float:
    return (ours - theirs).abs().max().item()
