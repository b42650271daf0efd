"""A run's batches depend on the epoch in which its iterator was made.

A run resumed in epoch 3 then trains on other batches than one that was not stopped (fairseq-fixed 0.12.3.1, not
0.12.2). With this patch batches are formed again in every epoch, which fairseq can do but only if a task's config asks
for it.
"""

from typing import Any
from unittest.mock import patch

import numpy
from fairseq.data import FairseqDataset
from fairseq.tasks import FairseqTask, fairseq_task
from fairseq.trainer import Trainer

from fairseq_luna.replacing import replaces

SUMMARY = "batches depended on the epoch of the last resume; they are formed again in every epoch"


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


def apply() -> None:
    # Not in the task, because validation uses its method too, and needs the same batches every time.
    @replaces(Trainer, "get_train_iterator")
    def get_train_iterator(original: Any, self: Trainer, *args: Any, **kwargs: Any) -> Any:
        task, get = self.task, self.task.get_batch_iterator

        def get_batch_iterator(*args: Any, **kwargs: Any) -> Any:
            with patch.object(task, "cfg", _Rebuilding(task.cfg)):
                return get(*args, **kwargs)

        with patch.object(task, "get_batch_iterator", get_batch_iterator):
            return original(self, *args, **kwargs)
