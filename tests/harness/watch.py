"""Sees every operator: the devices of its operands, waits for the device, copies between host and device."""

import traceback
from collections import Counter
from pathlib import Path
from typing import Any

import fairseq
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

import fairseq_luna
from shared.fake_device import tensors

PACKAGES = [Path(package.__file__).parent for package in (fairseq_luna, fairseq)]
COPIES = (torch.ops.aten._to_copy.default, torch.ops.aten.copy_.default)


class Watch(TorchDispatchMode):
    """Notes by place what makes the host wait for the device, copies between the two, and operands on both.

    The tensors have no data. The code asks for two numbers, which are answered here: whether anything is padded, and
    the length of the shortest source.
    """

    def __init__(self, *, padded: bool, shortest: int) -> None:
        super().__init__()
        self.padded, self.shortest = padded, shortest
        self.waits: Counter[str] = Counter()
        self.copies: Counter[str] = Counter()
        self.faults: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        operands = tensors((args, kwargs))
        if func is torch.ops.aten._local_scalar_dense.default and on_device(operands[0]):
            self.waits[place()] += 1
            return self.padded if operands[0].dtype == torch.bool else self.shortest
        out = func(*args, **(kwargs or {}))
        devices = {x.device.type for x in operands if x.dim()} | {x.device.type for x in tensors(out)}
        if len(devices) > 1 and func in COPIES:
            self.copies[f"to the {'device' if on_device(out) else 'host'} at {place()}"] += 1
        elif len(devices) > 1:
            self.faults.append(f"{func} of {' and '.join(sorted(devices))} at {place()}")
        return out


def faults(results: dict[str, Any], watch: Watch, logits: torch.dtype | None = None) -> list[str]:
    """What is wrong with the results by name, in nested containers; ``logits`` is the dtype that those should have."""
    found = [
        *watch.faults,
        *(f"{name} on the CPU" for name in results if not all(map(on_device, tensors(results[name])))),
    ]
    missing = [name for name, gradient in results.get("gradients", {}).items() if gradient is None]
    found += [f"no gradient for {name}" for name in missing]
    if "logits" in results and results["logits"].dtype != logits:
        found.append(f"logits in {results['logits'].dtype}")
    return found


def on_device(tensor: Tensor) -> bool:
    return tensor.device.type != "cpu"


def place() -> str:
    """File and line of the innermost call in this package or fairseq."""
    for frame, line in traceback.walk_stack(None):
        for package in PACKAGES:
            path = Path(frame.f_code.co_filename)
            if path.is_relative_to(package):
                return f"{path.relative_to(package.parent)}:{line}".removeprefix("fairseq_luna/")
    return "elsewhere"
