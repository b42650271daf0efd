"""Patches for faults of the installed fairseq, or of fairseq under a recent torch or numpy.

The faults break a run, lose work or take time. Each has one :class:`~.patch.Patch`, with a probe and a fix, in the file
of its subject. A patch is applied only if its probe finds the fault, so that a fixed fairseq is left unchanged.
"""

import functools
from typing import NamedTuple

import torch

from .beam_search import DiverseBeamRows, RepeatedNgrams
from .checkpoint_mismatch import HiddenMismatch
from .distributed_on_cpu import DeviceNumberOnCPU, IndependentCopies
from .encoder_fast_path import FastPathWithoutMaskType
from .end_of_training import AbortAtExit, UpdateAfterLast
from .epoch_data import (
    BatchesAfterResume,
    DroppedLastBatch,
    NoiseFromGlobalGenerator,
    VirtualEpochsAfterResume,
    WorkersOfFirstEpoch,
)
from .incomplete_checkpoints import MissingHistory, MissingVersion
from .interrupted_saving import InterruptedSaving
from .multi_tensor_adam import PerTensorAdam
from .multi_tensor_gradients import PerTensorGradients
from .numpy_versions import OverflowingPointers, RemovedNames
from .other_data import OtherDictionaries, OtherLanguages
from .patch import Patch
from .precision_flags import AMPOnCPU, BF16SetsTPU, UnclearFP16Errors
from .refused_checkpoints import RefusedBroadcast, RefusedClasses
from .store_ema import EMAOfIntegersAndTiedWeights, MissingEMA

_IN_ORDER: tuple[Patch, ...] = (
    RefusedClasses(),
    RefusedBroadcast(),
    OtherDictionaries(),
    OtherLanguages(),  # after OtherDictionaries: it reads the checkpoints of an ensemble one by one
    HiddenMismatch(),
    DroppedLastBatch(),
    IndependentCopies(),
    DeviceNumberOnCPU(),
    AMPOnCPU(),
    EMAOfIntegersAndTiedWeights(),
    BF16SetsTPU(),  # after IndependentCopies: its wrapper of call_main must be the outer one, which unsets --tpu first
    BatchesAfterResume(),
    WorkersOfFirstEpoch(),
    VirtualEpochsAfterResume(),
    NoiseFromGlobalGenerator(),
    UpdateAfterLast(),
    AbortAtExit(),
    InterruptedSaving(),
    RemovedNames(),
    OverflowingPointers(),
    RepeatedNgrams(),
    PerTensorGradients(),
    PerTensorAdam(),
    MissingVersion(),
    MissingHistory(),
    DiverseBeamRows(),
    UnclearFP16Errors(),
    MissingEMA(),
    FastPathWithoutMaskType(),
)
PATCHES = {patch.name: patch for patch in _IN_ORDER}


class Result(NamedTuple):
    """Whether a patch was applied in this process."""

    name: str
    applied: bool
    summary: str


@functools.cache
def apply_patches() -> tuple[Result, ...]:
    """Probe, then apply the patches that are needed, once per process; later calls return the first call's results."""
    with torch.device("cpu"):  # whatever the default device is: fairseq's data sets and the probes are for the CPU
        results = tuple(Result(name, patch.is_needed(), patch.summary) for name, patch in PATCHES.items())
    for result in results:
        if result.applied:
            PATCHES[result.name].apply()
    return results
