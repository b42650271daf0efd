"""A run's batches depend on the epoch in which its iterator was made.

A run resumed in epoch 3 then trains on other batches than one that was not stopped (fairseq-fixed 0.12.3.1, not
0.12.2). With this patch batches are formed again in every epoch, which fairseq can do but only if a task's config asks
for it.
"""

import contextlib
import functools
from collections.abc import Iterator
from typing import Any
from unittest.mock import patch

import numpy
from fairseq.data import FairseqDataset
from fairseq.tasks import FairseqTask, fairseq_task
from fairseq.trainer import Trainer

from fairseq_luna.compat.patch import Patch


class _Shuffled(FairseqDataset):
    """Sixteen items of one token in random order, for the probe."""

    def __len__(self) -> int:
        return 16

    def num_tokens_vec(self, indices: numpy.ndarray) -> numpy.ndarray:
        return numpy.ones_like(indices)

    def ordered_indices(self) -> numpy.ndarray:
        return numpy.random.permutation(len(self))

    def collater(self, samples: list[Any]) -> list[Any]:
        return samples


def is_needed() -> bool:
    """Whether batches depend on the epoch in which they are made, but are made only once."""
    with patch.object(fairseq_task.logger, "disabled", True):
        first, second = (
            FairseqTask(None).get_batch_iterator(_Shuffled(), max_sentences=4, epoch=epoch) for epoch in (1, 2)
        )
        differ = not numpy.array_equal(first.frozen_batches, second.frozen_batches)
    return differ and not callable(first.batch_sampler)


class _Rebuilding:
    """A task's config with ``rebuild_batches``, for which most configs have no field."""

    rebuild_batches = True

    def __init__(self, cfg: Any) -> None:
        self._cfg = cfg

    def __getattr__(self, name: str) -> Any:
        return getattr(self._cfg, name)


@contextlib.contextmanager
def _rebuilding(task: FairseqTask) -> Iterator[None]:
    """Within this context the task makes iterators that form their batches again in every epoch."""
    original_get = task.get_batch_iterator

    def get_batch_iterator(*args: Any, **kwargs: Any) -> Any:
        cfg, task.cfg = task.cfg, _Rebuilding(task.cfg)
        try:
            return original_get(*args, **kwargs)
        finally:
            task.cfg = cfg

    task.get_batch_iterator = get_batch_iterator
    try:
        yield
    finally:
        del task.get_batch_iterator


def apply() -> None:
    # Not in the task, because validation uses its method too, and needs the same batches every time.
    original_get = Trainer.get_train_iterator

    @functools.wraps(original_get)
    def get_train_iterator(self: Trainer, *args: Any, **kwargs: Any) -> Any:
        with _rebuilding(self.task):
            return original_get(self, *args, **kwargs)

    Trainer.get_train_iterator = get_train_iterator


PATCH = Patch(
    "resume", is_needed, apply, "batches depended on the epoch of the last resume; they are formed again in every epoch"
)
