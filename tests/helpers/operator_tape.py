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
# Operators whose results the host fills: torch.tensor's, and that of the shape as a tensor, which fairseq asks for.
WRITTEN_BY_THE_HOST = {"lift_fresh", "empty"}


class OperatorTape(TorchDispatchMode):
    """Records the operators that are called within it.

    Raises:
        RuntimeError: an operator asks the device for a number, which a CUDA graph cannot.
    """

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[tuple[Any, Any, Any, Any]] = []
        self.constants: list[Any] = []  # tensors that the host wrote, the same at every replay
        self.seen: list[Any] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func.overloadpacket.__name__
        inputs = [x for x in tree_leaves((args, kwargs or {})) if torch.is_tensor(x)]
        constant = all(contains(self.constants, x) for x in inputs)
        if name in READS_THE_DEVICE and not constant:
            raise RuntimeError(f"{func}: asks the device for a number while it is recorded")
        result = func(*args, **(kwargs or {}))
        results = [x for x in tree_leaves(result) if torch.is_tensor(x)]
        if torch.Tag.nondeterministic_seeded in func.tags or (func._schema.is_mutable and not constant):
            self.constants = [x for x in self.constants if not contains(results, x)]
        elif (
            name in WRITTEN_BY_THE_HOST
            or (name == "detach" and not contains(self.seen, args[0]))
            or (inputs and constant)
        ):
            self.constants += results
        self.seen += results
        self.calls.append((func, args, kwargs or {}, result))
        return result

    @torch.no_grad()
    def replay(self) -> None:
        """Run all operators again, with results in the memory of the first time."""
        with torch._C._AutoDispatchBelowAutograd():  # which refuses to write into what an earlier backward pass read
            self.replay_calls()

    def replay_calls(self) -> None:
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
    """As :func:`fairseq_luna.cuda_graph.record`."""
    reset()
    with OperatorTape() as tape:
        function()
    reset()
    return tape.replay
