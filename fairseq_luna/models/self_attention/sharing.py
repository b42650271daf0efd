"""One set of projections for all layers of a stack."""

from torch import nn


class SharedChildren:
    """Gives every module of a stack the child modules of the first.

    The modules themselves stay apart, because each keeps a generation state of its own.
    """

    def __init__(self) -> None:
        self.first: nn.Module | None = None

    def __call__(self, module: nn.Module) -> nn.Module:
        """``module``, with the first one's children in place of its own."""
        if self.first is None:
            self.first = module
        for name, child in self.first.named_children():
            setattr(module, name, child)
        return module
