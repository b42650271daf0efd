"""``batch_by_size`` drops the last batch if --required-batch-size-multiple (8 by default) does not divide its size.

Up to 7 sentences are then neither trained on, validated nor translated (fairseq-fixed 0.12.3.1, not 0.12.2). With this
patch the last batch is kept.
"""

from collections.abc import Iterable
from typing import Any

import numpy
from fairseq.data import data_utils

from fairseq_luna.replacing import replaces

SUMMARY = "a last batch whose size is not a multiple of 8 was dropped; it is kept"


def is_needed() -> bool:
    """Whether fewer than seven of seven sentences are returned."""
    seven = numpy.arange(7)
    batches = data_utils.batch_by_size(
        seven, None, num_tokens_vec=numpy.ones_like(seven), max_sentences=4, required_batch_size_multiple=4
    )
    return sum(map(len, batches)) < len(seven)


def apply() -> None:
    @replaces(data_utils, "batch_by_size")
    def batch_by_size(original: Any, indices: Iterable[int], *args: Any, **kwargs: Any) -> list[numpy.ndarray]:
        if not isinstance(indices, numpy.ndarray):
            indices = numpy.fromiter(indices, dtype=numpy.int64, count=-1)
        if len(indices) == 0:  # fairseq would read the last of no batches
            return []
        batches = original(indices, *args, **kwargs)
        # Batches are consecutive runs of the indices, and fairseq formed the dropped batch within the limits, so the
        # remaining indices are that batch.
        kept = sum(map(len, batches))
        return batches if kept == len(indices) else [*batches, indices[kept:]]
