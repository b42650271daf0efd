"""Layers that share parameters: each is a module of its own, because it keeps its own generation state."""

from collections.abc import Callable, Iterable
from typing import Any

from torch import nn

from .layers import BuildAttention

Names = Callable[[nn.Module], Iterable[str]]


def share(first: nn.Module, other: nn.Module, names: Names) -> None:
    """Put into ``other`` the children and parameters that ``names`` gives of ``first``."""
    for name in names(first):
        owner, _, last = name.rpartition(".")
        setattr(other.get_submodule(owner), last, getattr(first.get_submodule(owner), last))


class Sharing:
    """``build``, called for each layer of a stack: all attentions share with the first what ``names`` gives of it."""

    def __init__(self, build: BuildAttention, names: Names) -> None:
        self.build, self.names = build, names
        self.first: nn.Module | None = None

    def __call__(self, cfg: Any) -> nn.Module:
        module = self.build(cfg)
        if self.first is None:
            self.first = module
        share(self.first, module, self.names)
        return module


def all_children(module: nn.Module) -> list[str]:
    """What a module consists of, for one without parameters of its own."""
    return [name for name, _ in module.named_children()]
