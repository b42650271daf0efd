"""The processes that load data keep the data set of the first epoch.

fairseq tells a data set the epoch's number, on which masks, noise and random crops depend, but goes on with the workers
that it started before, whose copies never hear of it. So a masked language model sees the same masks in every epoch
until it is resumed (fairseq 0.12.2 and fairseq-fixed 0.12.3.1, --num-workers above 0). With this patch each epoch that
is told to the data set starts workers with the data set as it then is. Validation, whose data stay the same, keeps
its workers.
"""

import os
from typing import Any
from unittest.mock import patch

import torch
from fairseq.data import FairseqDataset
from fairseq.data.iterators import EpochBatchIterator

from fairseq_luna.replacing import replaces

SUMMARY = "workers kept the first epoch's masks and noise; each epoch starts workers of its own"


class _Loader(list[Any]):
    """Stands in for torch's loader in the probe and starts no process."""

    def __init__(self, dataset: FairseqDataset, **_: Any) -> None:
        super().__init__([None])


def is_needed() -> bool:
    """Whether the second epoch is read by the loader, and so by the workers, of the first."""
    made = []
    batches = EpochBatchIterator(FairseqDataset(), None, [[0]], num_workers=1, reuse_dataloader=True)
    with patch.object(torch.utils.data, "DataLoader", _Loader), patch.dict(os.environ):
        for _ in range(2):
            list(batches.next_epoch_itr(shuffle=False))
            made.append(batches.dataloader)
    return made[0] is not None and made[0] is made[1]


def apply() -> None:
    @replaces(EpochBatchIterator, "next_epoch_itr")
    def next_epoch_itr(
        original: Any,
        self: EpochBatchIterator,
        shuffle: bool = True,
        fix_batches_to_gpus: bool = False,
        set_dataset_epoch: bool = True,
    ) -> Any:
        if set_dataset_epoch:
            self.dataloader = None
        return original(self, shuffle, fix_batches_to_gpus, set_dataset_epoch)
