"""What the installed fairseq (or fairseq under today's torch) gets wrong, and this plugin puts right.

Each mend is a file with a probe; one is applied only where its probe shows the fault, so that a fairseq that
has been repaired is left alone.
"""

import functools
import logging

from fairseq_luna.host import (
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
from fairseq_luna.host.mend import Mend, Result

logger = logging.getLogger(__name__)

# Checkpoints come before broadcast: rank 0 reads a file before it sends it on. bf16 comes after torchrun, so that
# its wrapper is the outer one: the other asks whether the run is on a TPU. torchrun's stands outside unchecked's too.
MENDS: tuple[Mend, ...] = (
    checkpoints.MEND,
    broadcast.MEND,
    last_batch.MEND,
    unchecked.MEND,
    torchrun.MEND,
    cpu_ddp.MEND,
    bf16.MEND,
    resume.MEND,
    finished.MEND,
    exit_threads.MEND,
    saving.MEND,
    hydra_errors.MEND,
)


@functools.cache
def apply() -> tuple[Result, ...]:
    """Apply the mends that are needed, once per process; later calls return the first call's results."""
    return tuple(_apply(mend) for mend in MENDS)


def _apply(mend: Mend) -> Result:
    needed = mend.probe()
    if needed:
        mend.mend()
        logger.info("host mend %s: %s", mend.name, mend.line)
    return Result(mend.name, needed, mend.line)
