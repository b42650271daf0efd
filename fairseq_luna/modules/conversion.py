"""Rules by which ``fairseq-luna convert`` fills parameters that the old model lacks, as data beside each module.

A module class has ``conversion_rules``, by the name of a child module or a parameter, for a model that is converted to
it, and ``successor_rules`` for the module that takes its place when a model with it is converted to another one.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch.nn.functional as F
from torch import Tensor, nn


@dataclass(frozen=True)
class Rule:
    """The origin of one child module or parameter.

    Args:
        names: names in the old model to copy from instead, the best first.
        start: fills the new parameter if the old model has none of them; None: it stays as the model initializes it.
        fit: fills the new parameter from one of the old model that has another shape; None: that one does not serve.
    """

    names: tuple[str, ...] = ()
    start: Callable[[Tensor], object] | None = None
    fit: Callable[[Tensor, Tensor], object] | None = None


Rules = Mapping[str, Rule]


def zero(new: Tensor) -> None:
    """Fill ``new`` with zeros."""
    new.zero_()


def ones(new: Tensor) -> None:
    """Fill ``new`` with ones: shares of a whole."""
    new.fill_(1)


def identity(new: Tensor) -> None:
    """Fill the weight or the bias of a linear map that returns its input."""
    if new.dim() == 2:
        nn.init.eye_(new)
    else:
        new.zero_()


def open_gate(new: Tensor) -> None:
    """Fill the weight or the bias of a gate whose swish is 1 for every input."""
    new.fill_(1.2784645 if new.dim() == 1 else 0)


def first_part(new: Tensor, old: Tensor) -> None:
    """Copy the numbers that both have: the first slots, or the first positions."""
    both = tuple(slice(min(sizes)) for sizes in zip(new.shape, old.shape, strict=True))
    new[both] = old[both]


def identity_and_zero(new: Tensor, old: Tensor) -> None:
    """Fill the weight of a linear map of two concatenated vectors so that the second does not change the result."""
    new.zero_()
    new[:, : old.shape[1]] = old


def align_centers(new: Tensor, old: Tensor) -> None:
    """Copy the kernel of a bidirectional convolution, with zeros added or numbers left out at both ends."""
    more = (new.shape[1] - old.shape[1]) // 2
    new.copy_(F.pad(old, (more, more)))


def align_last(new: Tensor, old: Tensor) -> None:
    """Copy the kernel of a causal convolution, whose last number belongs to the newest step."""
    new.copy_(F.pad(old, (new.shape[1] - old.shape[1], 0)))
