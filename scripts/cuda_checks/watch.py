"""Sees every operator: the devices of its operands, waits for the device, copies between host and device."""

import traceback
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

import fairseq
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

import fairseq_luna

_PACKAGES = [Path(package.__file__).parent for package in (fairseq_luna, fairseq)]
_COPIES = (torch.ops.aten._to_copy.default, torch.ops.aten.copy_.default)


class Watch(TorchDispatchMode):
    """Notes by place what makes the host wait for the device, copies between the two, and operands on both.

    Fake tensors have no data. The code asks for two numbers, which are answered here: whether anything is padded, and
    the length of the shortest source.

    Args:
        padded: whether anything in the batch is padded.
        shortest: the length.
    """

    def __init__(self, *, padded: bool, shortest: int) -> None:
        super().__init__()
        self.padded = padded
        self.shortest = shortest
        self.waits: Counter[str] = Counter()
        self.copies: Counter[str] = Counter()
        self.faults: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        operands = tensors((args, kwargs))
        if func is torch.ops.aten._local_scalar_dense.default and operands[0].is_cuda:
            self.waits[place()] += 1
            return self.padded if operands[0].dtype == torch.bool else self.shortest
        out = func(*args, **(kwargs or {}))
        devices = {x.device.type for x in operands if x.dim()} | {x.device.type for x in tensors(out)}
        if len(devices) > 1 and func in _COPIES:
            self.copies[f"to the {'device' if out.is_cuda else 'host'} at {place()}"] += 1
        elif len(devices) > 1:
            self.faults.append(f"{func} of {' and '.join(sorted(devices))} at {place()}")
        return out


class Seen(NamedTuple):
    """A part of a run: its results by name, in nested containers, and what the watch saw."""

    part: str
    results: dict[str, Any]
    watch: Watch

    def faults(self, logits: torch.dtype) -> list[str]:
        """What is wrong, given the dtype that the logits should have."""
        found = list(self.watch.faults)
        for name, result in self.results.items():
            if any(not tensor.is_cuda for tensor in tensors(result)):
                found.append(f"{name} on the CPU")
        missing = [name for name, gradient in self.results.get("gradients", {}).items() if gradient is None]
        if missing:
            found.append(f"no gradient for {', '.join(missing)}")
        if "logits" in self.results and self.results["logits"].dtype != logits:
            found.append(f"logits in {self.results['logits'].dtype}")
        return [f"{self.part}: {fault}" for fault in found]

    def __str__(self) -> str:
        """The dtypes of the results, and the counts by place."""
        dtypes = [f"{name} {' '.join(dtypes_of(result))}" for name, result in self.results.items()]
        counted = [
            f"{counts.total()} {kind}: {', '.join(f'{where} x{count}' for where, count in counts.items())}"
            for kind, counts in (("waits", self.watch.waits), ("copies", self.watch.copies))
            if counts
        ]
        return f"{self.part}: {'; '.join([', '.join(dtypes), *counted])}"


def dtypes_of(tree: Any) -> list[str]:
    return sorted({str(x.dtype).removeprefix("torch.") for x in tensors(tree)})


def tensors(tree: Any) -> list[Tensor]:
    """All tensors in nested containers."""
    return [x for x in tree_leaves(tree) if isinstance(x, Tensor)]


def place(frames: Iterable[tuple[FrameType, int]] | None = None) -> str:
    """File and line of the first of the ``frames`` in this package or fairseq; by default, of the innermost call."""
    for frame, line in frames or traceback.walk_stack(None):
        for package in _PACKAGES:
            path = Path(frame.f_code.co_filename)
            if path.is_relative_to(package):
                return f"{path.relative_to(package.parent)}:{line}".removeprefix("fairseq_luna/")
    return "elsewhere"
