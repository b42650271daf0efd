"""Sees every operator on a device that computes nothing; what would be a fault on a real one is an error there."""

from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from shared.fake_device import tensors

COPIES = (torch.ops.aten._to_copy.default, torch.ops.aten.copy_.default)


class Watch(TorchDispatchMode):
    """Operands on the host and on the device are an error; ``alone``: so are waits for the device, and copies.

    The tensors have no data. The code asks for two numbers, which are answered here: whether anything is padded, and
    the length of the shortest source.
    """

    def __init__(self, *, padded: bool = False, shortest: int = 0, alone: bool = False) -> None:
        super().__init__()
        self.padded, self.shortest, self.alone = padded, shortest, alone

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        operands = tensors((args, kwargs))
        if func is torch.ops.aten._local_scalar_dense.default and on_device(operands[0]):
            assert not self.alone, "the host waits for the device"
            return self.padded if operands[0].dtype == torch.bool else self.shortest
        out = func(*args, **(kwargs or {}))
        devices = {x.device.type for x in operands if x.dim()} | {x.device.type for x in tensors(out)}
        copied = func in COPIES and not self.alone
        assert copied or len(devices) < 2, f"{func} of {' and '.join(sorted(devices))}"
        return out


def check(results: dict[str, Any], logits: torch.dtype | None = None) -> None:
    """All results, by name, in nested containers, are on the device; ``logits`` is the dtype that those should have."""
    assert [name for name in results if not all(map(on_device, tensors(results[name])))] == [], "on the CPU"
    assert [name for name, gradient in results.get("gradients", {}).items() if gradient is None] == [], "no gradient"
    assert "logits" not in results or results["logits"].dtype == logits


def on_device(tensor: Tensor) -> bool:
    return tensor.device.type != "cpu"
