"""With ``--virtual-epoch-size`` a resumed run has other sentences than one that was not stopped.

``--task translation_multi_simple_epoch`` draws an order of all sentences in the first of the epochs that share them,
and another one where a run is resumed in a later one (fairseq 0.12.2 and fairseq-fixed 0.12.3.1). With this patch the
resumed run has the order of the first.
"""

from typing import Any
from unittest.mock import patch

import numpy
from fairseq.data import ListDataset
from fairseq.data.multilingual import sampled_multi_dataset, sampled_multi_epoch_dataset
from fairseq.data.multilingual.sampled_multi_epoch_dataset import SampledMultiEpochDataset

from fairseq_luna.replacing import replaces

SUMMARY = "a resumed run drew other virtual epochs; it has those of the first run"


def is_needed() -> bool:
    """Whether the second half of sixteen sentences depends on the epoch in which the data set was made."""
    orders = []
    with (
        patch.object(sampled_multi_dataset.logger, "disabled", True),
        patch.object(sampled_multi_epoch_dataset.logger, "disabled", True),
    ):
        for made in (1, 2):
            texts = ListDataset([0] * 16, numpy.ones(16))
            dataset = SampledMultiEpochDataset([texts], epoch=made, virtual_epoch_size=8)
            dataset.set_epoch(2)
            orders.append([dataset._map_epoch_index_to_global(index) for index in range(8)])
    return orders[0] != orders[1]


def apply() -> None:
    @replaces(SampledMultiEpochDataset, "_next_virtual_epoch")
    def _next_virtual_epoch(original: Any, self: SampledMultiEpochDataset, epoch: int) -> None:
        first = epoch - self._get_epoch_start_index(epoch) // self.virtual_epoch_size
        if self._random_global_indices is None and first < epoch:
            original(self, first)
        original(self, epoch)
