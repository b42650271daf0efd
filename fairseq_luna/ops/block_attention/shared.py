"""The projections of the second level as an argument."""

from collections.abc import Callable

from torch import Tensor

# Summaries (B, H, any number, D) to their queries, keys and values, each summary separately.
Projection = Callable[[Tensor], tuple[Tensor, Tensor, Tensor]]
