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
    last_batch,
    mismatch,
    resume,
    saving,
    torchrun,
)
from fairseq_luna.compat.patch import Patch, Result

# bf16 comes after torchrun, so that its wrapper is the outer one: torchrun's reads --tpu, which bf16's unsets.
PATCHES: tuple[Patch, ...] = (
    checkpoints.PATCH,
    broadcast.PATCH,
    mismatch.PATCH,
    last_batch.PATCH,
    torchrun.PATCH,
    cpu_ddp.PATCH,
    bf16.PATCH,
    resume.PATCH,
    finished.PATCH,
    exit_threads.PATCH,
    saving.PATCH,
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
