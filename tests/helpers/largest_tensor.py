"""The largest tensor of a computation: a measure of memory that does not depend on the machine."""

from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves


class LargestTensor(TorchDispatchMode):
    """Records the number of elements of the largest tensor, of ``dtype`` if it is given, that any operation returns."""

    def __init__(self, dtype: torch.dtype | None = None) -> None:
        super().__init__()
        self.dtype, self.elements = dtype, 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        for leaf in tree_leaves(out):
            if isinstance(leaf, torch.Tensor) and self.dtype in (None, leaf.dtype):
                self.elements = max(self.elements, leaf.numel())
        return out
