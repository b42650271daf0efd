"""Parameters of attention to a pattern, for encoder, decoder and source, and the patterns by name."""

from collections.abc import Callable
from typing import Any

from torch import Tensor

from ..ops.pattern_attention import Pattern, RandomBlocks, Strided, TopK, Window
from ..usage_error import ArgumentError
from .attention_projections import AttentionProjections

# The numbers that patterns have.
NUMBERS = ("window", "dilation", "stride", "block_size", "count")


def local(*, window: int = 16) -> Window:
    """The steps up to ``window`` away."""
    return Window(window)


def topk(*, count: int = 8) -> TopK:
    """The steps with the ``count`` largest scores."""
    return TopK(count)


def sparse(*, stride: int = 32) -> Strided:
    """The own block of ``stride`` steps, and the last quarter of every block, 8 at most: O(N^1.5) at sqrt(N)."""
    return Strided(stride, summary=max(1, min(8, stride // 4)))


def longformer(*, window: int = 512, dilation: int = 1) -> Window:
    """``window`` steps on each side, of which each is ``dilation`` from the next."""
    return Window(window, dilation)


def bigbird(*, seeds: Tensor, block_size: int = 64) -> RandomBlocks:
    """Blocks of ``block_size`` steps: three neighbouring, the first, the last and three random ones."""
    return RandomBlocks(block_size, random=3, seeds=seeds)


class PatternProjections(AttentionProjections):
    """The parameters of attention to a pattern: those of softmax attention.

    Args:
        pattern: one of these functions, such as :func:`local`; it decides which attention this is.
        options: arguments of ``pattern``, and those of :class:`.AttentionProjections`; dropout is of attention weights.

    Raises:
        UsageError: if an argument of ``pattern`` is below 1, or :class:`.AttentionProjections` refuses an option.
    """

    def __init__(self, *, pattern: Callable[..., Pattern], **options: Any) -> None:
        chosen = {name: options.pop(name) for name in NUMBERS if name in options}
        super().__init__(**options)
        for name, value in chosen.items():
            if value < 1:
                raise ArgumentError(name, value, "must be 1 or more")
        self.pattern = pattern(**chosen)
