"""numpy 2 has no ``numpy.compat``, whose ``long``, another name for ``int``, fairseq reads in two places.

With ``--sample-break-mode eos``, one sample for each line of a language model's text, and with ``--num-batch-buckets``
it fails (fairseq 0.12.2 and fairseq-fixed 0.12.3.1). With this patch ``numpy.compat.long`` exists again.
"""

from types import SimpleNamespace

import numpy
from fairseq.data import TokenBlockDataset

from fairseq_luna.compat.patch import Patch


def is_needed() -> bool:
    """Whether fairseq fails to make a sample of one line."""
    try:
        TokenBlockDataset._build_slice_indices([1], "eos", 0, 0)
    except AttributeError:
        return True
    return False


def apply() -> None:
    numpy.compat = SimpleNamespace(long=int)  # type: ignore[attr-defined]


PATCH = Patch("numpy-long", is_needed, apply, "numpy 2 lacks numpy.compat.long, which fairseq reads; it is int again")
