"""fairseq reads names that numpy has removed: ``int``, ``float``, ``compat.long`` and percentile's ``interpolation``.

It fails with ``--sample-break-mode eos``, one sample for each line of a language model's text, with
``--num-batch-buckets``, in masks that do not overlap and in the CRF of non-autoregressive models (fairseq 0.12.2 and
fairseq-fixed 0.12.3.1). With this patch these modules of fairseq find the names; numpy itself stays as it is.
"""

from types import SimpleNamespace
from typing import Any

import numpy
from fairseq.data import data_utils, language_pair_dataset, token_block_dataset
from fairseq.modules import dynamic_crf_layer

SUMMARY = "numpy has removed names that fairseq reads; it finds them again"

_READERS = (data_utils, language_pair_dataset, token_block_dataset, dynamic_crf_layer)


class _Numpy:
    """numpy with the names that fairseq reads."""

    int = int
    float = float
    compat = SimpleNamespace(long=int)

    def __getattr__(self, name: str) -> Any:
        return getattr(numpy, name)

    @staticmethod
    def percentile(*args: Any, interpolation: str = "linear", **options: Any) -> Any:
        return numpy.percentile(*args, **{"method": interpolation, **options})


def is_needed() -> bool:
    """Whether fairseq fails to make a sample of one line, or buckets of sentences."""
    try:
        token_block_dataset.TokenBlockDataset._build_slice_indices([1], "eos", 0, 0)
        data_utils.get_buckets([1], 1)
    except (AttributeError, TypeError):
        return True
    return False


def apply() -> None:
    for module in _READERS:
        module.np = _Numpy()
