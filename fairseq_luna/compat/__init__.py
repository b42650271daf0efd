"""Patches for faults of the installed fairseq, or of fairseq under a recent torch, that break a run, lose work or time.

Each patch is a file. It is applied only if its probe finds the fault, so a fixed fairseq is left unchanged.
"""

import functools

import torch

from fairseq_luna.compat import (
    bf16,
    broadcast,
    checkpoints,
    cpu_amp,
    cpu_ddp,
    denoising,
    ema,
    exit_threads,
    finished,
    last_batch,
    mismatch,
    multi_tensor,
    ngrams,
    numpy_names,
    pointers,
    resume,
    saving,
    torchrun,
    virtual_epochs,
    workers,
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
    cpu_amp.PATCH,
    ema.PATCH,
    bf16.PATCH,
    resume.PATCH,
    workers.PATCH,
    virtual_epochs.PATCH,
    denoising.PATCH,
    finished.PATCH,
    exit_threads.PATCH,
    saving.PATCH,
    numpy_names.PATCH,
    pointers.PATCH,
    ngrams.PATCH,
    multi_tensor.PATCH,
)


@functools.cache
def apply_patches() -> tuple[Result, ...]:
    """Probe, then apply the patches that are needed, once per process; later calls return the first call's results."""
    with torch.device("cpu"):  # whatever the default device is: fairseq's data sets and the probes are for this one
        results = tuple(Result(patch.name, patch.is_needed(), patch.summary) for patch in PATCHES)
    for patch, result in zip(PATCHES, results, strict=True):
        if result.applied:
            patch.apply()
    return results
