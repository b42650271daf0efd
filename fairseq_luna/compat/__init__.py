"""Patches for faults of the installed fairseq, or of fairseq under a recent torch, that break a run, lose work or time.

Each patch is a file: ``is_needed()`` probes for the fault, ``apply()`` fixes it in this process, and ``SUMMARY``
describes both. It is applied only if its probe finds the fault, so a fixed fairseq is left unchanged.
"""

import functools
from importlib import import_module
from typing import NamedTuple

import torch

# bf16 comes after torchrun, so that its wrapper is the outer one: torchrun's reads --tpu, which bf16's unsets.
NAMES = (
    *("checkpoints", "broadcast", "languages", "mismatch", "last-batch", "torchrun", "cpu-ddp", "cpu-amp", "ema"),
    *("bf16", "resume", "workers", "virtual-epochs", "denoising", "finished", "exit", "saving", "numpy-names"),
    *("pointers", "ngrams", "multi-tensor", "adam", "final-norms", "history", "diverse-beams", "half-precision"),
    "ema-start",
)
PATCHES = {name: import_module(f"{__name__}.{name.replace('-', '_')}") for name in NAMES}


class Result(NamedTuple):
    """Whether a patch was applied in this process."""

    name: str
    applied: bool
    summary: str


@functools.cache
def apply_patches() -> tuple[Result, ...]:
    """Probe, then apply the patches that are needed, once per process; later calls return the first call's results."""
    with torch.device("cpu"):  # whatever the default device is: fairseq's data sets and the probes are for this one
        results = tuple(Result(name, patch.is_needed(), patch.SUMMARY) for name, patch in PATCHES.items())
    for result in results:
        if result.applied:
            PATCHES[result.name].apply()
    return results
