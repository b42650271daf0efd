"""Patches for faults of the installed fairseq, or of fairseq under a recent torch, that break a run or lose work.

Each patch is a file. It is applied only if its probe finds the fault, so a fixed fairseq is left unchanged.
"""

import functools

from fairseq_luna.compat import (
    bf16,
    broadcast,
    checkpoints,
    cpu_ddp,
    exit_threads,
    finished,
    hydra_errors,
    last_batch,
    resume,
    saving,
    torchrun,
    unchecked,
)
from fairseq_luna.compat.patch import Patch, Result

# Checkpoints come before broadcast: rank 0 reads a file before it sends it on. bf16 comes after torchrun, so that
# its wrapper is the outer one: the other asks whether the run is on a TPU. torchrun's stands outside unchecked's too.
PATCHES: tuple[Patch, ...] = (
    checkpoints.PATCH,
    broadcast.PATCH,
    last_batch.PATCH,
    unchecked.PATCH,
    torchrun.PATCH,
    cpu_ddp.PATCH,
    bf16.PATCH,
    resume.PATCH,
    finished.PATCH,
    exit_threads.PATCH,
    saving.PATCH,
    hydra_errors.PATCH,
)


@functools.cache
def apply_patches() -> tuple[Result, ...]:
    """Apply the patches that are needed, once per process; later calls return the first call's results."""
    return tuple(_apply(patch) for patch in PATCHES)


def _apply(patch: Patch) -> Result:
    needed = patch.is_needed()
    if needed:
        patch.apply()
    return Result(patch.name, needed, patch.summary)
