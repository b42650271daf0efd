"""Recording and replaying operators on the same memory, as a CUDA graph does it, on any device."""

from collections.abc import Callable
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

# Operators that wait for the device to give the host a number, or a tensor of a size that depends on data.
READS_THE_DEVICE = {
    *("_local_scalar_dense", "nonzero", "masked_select", "_unique2", "unique_dim", "equal", "is_nonzero"),
}


class OperatorTape(TorchDispatchMode):
    """Records the operators that are called within it.

    Raises:
        RuntimeError: an operator asks the device for a number, which a CUDA graph cannot.
    """

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[tuple[Any, Any, Any, Any]] = []
        self.constants: list[Any] = []  # tensors that Python wrote, the same at every replay
        self.seen: list[Any] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func.overloadpacket.__name__
        inputs = [x for x in tree_leaves((args, kwargs or {})) if torch.is_tensor(x)]
        if name in READS_THE_DEVICE and not all(contains(self.constants, x) for x in inputs):
            raise RuntimeError(f"{func}: asks the device for a number while it is recorded")
        result = func(*args, **(kwargs or {}))
        if name == "lift_fresh" or (name == "detach" and not contains(self.seen, args[0])):
            self.constants.append(result)
        self.seen += [x for x in tree_leaves(result) if torch.is_tensor(x)]
        self.calls.append((func, args, kwargs or {}, result))
        return result

    def replay(self) -> None:
        """Run all operators again, with results in the memory of the first time."""
        for func, args, kwargs, result in self.calls:
            if func.is_view:
                continue  # it shares the memory of its input
            again = func(*args, **kwargs)
            if not func._schema.is_mutable:
                for before, now in zip(tree_leaves(result), tree_leaves(again), strict=True):
                    if torch.is_tensor(before):
                        assert before.shape == now.shape, f"{func}: a shape differs from call to call"
                        before.copy_(now)


def contains(tensors: list[Any], tensor: Any) -> bool:
    return any(x is tensor for x in tensors)


def record(function: Callable[[], None], reset: Callable[[], None]) -> Callable[[], None]:
    """As :func:`fairseq_luna.search.cuda_graph.record`."""
    reset()
    with OperatorTape() as tape:
        function()
    reset()
    return tape.replay
