"""``batch_by_size`` of fairseq's later versions drops a last batch that --required-batch-size-multiple does
not divide, so that up to 7 sentences by default are neither trained on, validated nor translated."""

import functools
from collections.abc import Iterable
from typing import Any

import numpy
from fairseq.data import data_utils

from fairseq_luna.compat.patch import Patch


def is_needed() -> bool:
    """Whether seven sentences come back as fewer."""
    seven = numpy.arange(7)
    batches = data_utils.batch_by_size(
        seven, None, num_tokens_vec=numpy.ones_like(seven), max_sentences=4, required_batch_size_multiple=4
    )
    return sum(map(len, batches)) < len(seven)


def apply() -> None:
    original_batch_by_size = data_utils.batch_by_size

    @functools.wraps(original_batch_by_size)
    def batch_by_size(indices: Iterable[int], *args: Any, **kwargs: Any) -> list[numpy.ndarray]:
        if not isinstance(indices, numpy.ndarray):
            indices = numpy.fromiter(indices, dtype=numpy.int64, count=-1)
        if len(indices) == 0:  # the host looks at the last batch and there is none
            return []
        batches = original_batch_by_size(indices, *args, **kwargs)
        # Batches are consecutive runs of the indices, and the host formed the dropped one within the limits
        # before it dropped it, so the rest is that batch.
        kept = sum(map(len, batches))
        return batches if kept == len(indices) else [*batches, indices[kept:]]

    data_utils.batch_by_size = batch_by_size


PATCH = Patch("last-batch", is_needed, apply, "a last batch of no multiple of 8 sentences was dropped; it is kept")
