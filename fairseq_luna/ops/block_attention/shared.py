"""The learned maps of the second level as arguments."""

from collections.abc import Callable

from torch import Tensor

# Summaries (B, H, any number, D) to their queries, keys and values, each summary separately.
Projection = Callable[[Tensor], tuple[Tensor, Tensor, Tensor]]
# The second level's result (B, H, any number, D) to what its readers need of it, of the same shape.
Finish = Callable[[Tensor], Tensor]


def unchanged(z: Tensor) -> Tensor:
    """``z``."""
    return z
