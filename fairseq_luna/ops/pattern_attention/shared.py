"""Patterns: which steps a step may see. Positions are counted among the real steps."""

from dataclasses import dataclass
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from ..once_per_batch import once_per_batch


class Pattern(Protocol):
    """What a step sees; a causal attention leaves out the later steps of it."""

    def sees(self, i: Tensor, j: Tensor) -> Tensor:
        """Whether the step at position ``i`` sees that at ``j``; both int64, broadcast against each other."""


@dataclass(frozen=True)
class Window:
    """The steps at a distance of 0, ``dilation``, 2 ``dilation``, ... up to ``window`` times ``dilation``."""

    window: int
    dilation: int = 1

    def sees(self, i: Tensor, j: Tensor) -> Tensor:
        distance = (i - j).abs()
        return (distance <= self.reach) & (distance % self.dilation == 0)

    @property
    def reach(self) -> int:
        """The largest distance."""
        return self.window * self.dilation


@dataclass(frozen=True)
class TopK:
    """The steps whose score is at least the ``count``-th largest (arXiv 1912.11637); more if scores are equal."""

    count: int

    def sees(self, i: Tensor, j: Tensor) -> Tensor:
        """All: the scores decide."""
        return torch.ones_like(i, dtype=torch.bool) & torch.ones_like(j, dtype=torch.bool)


class RealFirst(NamedTuple):
    """The order in which the real steps of a sentence come first, so that a place is a position."""

    steps: Tensor  # (B, T) int64, the step at each place
    places: Tensor  # (B, T) int64, the place of each step
    lengths: Tensor  # (B,) int64, the number of real steps


@once_per_batch
def real_first(padding_mask: Tensor) -> RealFirst:
    """The order for ``padding_mask (B, T)``, True = padding; the same object for all layers with the same mask."""
    steps = padding_mask.to(torch.uint8).argsort(dim=1, stable=True)
    return RealFirst(steps, steps.argsort(dim=1), (~padding_mask).sum(1))


def reordered(x: Tensor, order: Tensor) -> Tensor:
    """``x (B, H, T, D)`` with step ``order[b, t]`` of sentence b at t."""
    return x.gather(2, order[:, None, :, None].expand_as(x))
