"""The data of an epoch: sentences that are lost, and batches, noise and masks that change when a run is resumed."""

import os
from collections.abc import Callable, Iterable
from typing import Any
from unittest.mock import patch

import numpy
import torch
from fairseq.data import Dictionary, FairseqDataset, ListDataset, data_utils
from fairseq.data.denoising_dataset import DenoisingDataset
from fairseq.data.iterators import EpochBatchIterator
from fairseq.data.multilingual import sampled_multi_dataset, sampled_multi_epoch_dataset
from fairseq.data.multilingual.sampled_multi_epoch_dataset import SampledMultiEpochDataset
from fairseq.tasks import FairseqTask, fairseq_task
from fairseq.trainer import Trainer
from torch.overrides import TorchFunctionMode

from fairseq_luna.compat.patch import Patch
from fairseq_luna.monkeypatch import wrap_method


class DroppedLastBatch(Patch):
    """``batch_by_size`` drops the last batch if --required-batch-size-multiple (default: 8) does not divide its size.

    Up to 7 sentences are then neither trained on, validated nor translated (fairseq-fixed 0.12.3.1, not 0.12.2). With
    this patch the last batch is kept.
    """

    name = "last-batch"
    summary = "a last batch whose size is not a multiple of 8 was dropped; it is kept"

    def is_needed(self) -> bool:
        """Whether fewer than seven of seven sentences are returned."""
        seven = numpy.arange(7)
        batches = data_utils.batch_by_size(
            seven, None, num_tokens_vec=numpy.ones_like(seven), max_sentences=4, required_batch_size_multiple=4
        )
        return sum(map(len, batches)) < len(seven)

    def apply(self) -> None:
        @wrap_method(data_utils, "batch_by_size")
        def batch_by_size(original: Any, indices: Iterable[int], *args: Any, **kwargs: Any) -> list[numpy.ndarray]:
            if not isinstance(indices, numpy.ndarray):
                indices = numpy.fromiter(indices, dtype=numpy.int64, count=-1)
            if len(indices) == 0:  # fairseq would read the last of no batches
                return []
            batches = original(indices, *args, **kwargs)
            # Batches are consecutive runs of the indices, and fairseq formed the dropped batch within the limits: the
            # remaining indices are this batch.
            kept = sum(map(len, batches))
            return batches if kept == len(indices) else [*batches, indices[kept:]]


class BatchesAfterResume(Patch):
    """A run's batches depend on the epoch in which its iterator was created.

    A run that is resumed in epoch 3 then trains on other batches than a run that was not stopped (fairseq-fixed
    0.12.3.1, not 0.12.2). With this patch batches are formed again in every epoch. fairseq can do this, but only if a
    task's config has an option for it.
    """

    name = "resume"
    summary = "batches depended on the epoch of the last resume; they are formed again in every epoch"

    def is_needed(self) -> bool:
        """Whether batches depend on the epoch in which they are formed, but are formed only once."""
        with patch.object(fairseq_task.logger, "disabled", True):
            first, second = (
                FairseqTask(None).get_batch_iterator(_Shuffled(), max_sentences=4, epoch=epoch) for epoch in (1, 2)
            )
            differ = not numpy.array_equal(first.frozen_batches, second.frozen_batches)
        return differ and not callable(first.batch_sampler)

    def apply(self) -> None:
        # The task's own method serves validation too, which needs the same batches every time.
        @wrap_method(Trainer, "get_train_iterator")
        def get_train_iterator(original: Any, self: Trainer, *args: Any, **kwargs: Any) -> Any:
            task, get = self.task, self.task.get_batch_iterator

            def get_batch_iterator(*args: Any, **kwargs: Any) -> Any:
                with patch.object(task, "cfg", _Rebuilding(task.cfg)):
                    return get(*args, **kwargs)

            with patch.object(task, "get_batch_iterator", get_batch_iterator):
                return original(self, *args, **kwargs)


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


class _Rebuilding:
    """A task's config with ``rebuild_batches``, an option that most configs lack."""

    rebuild_batches = True

    def __init__(self, cfg: Any) -> None:
        self._cfg = cfg

    def __getattr__(self, name: str) -> Any:
        return getattr(self._cfg, name)


class VirtualEpochsAfterResume(Patch):
    """With ``--virtual-epoch-size`` a resumed run has other sentences than a run that was not stopped.

    ``--task translation_multi_simple_epoch`` draws an order of all sentences in the first of the epochs that share
    them, and another order where a run is resumed in a later one (fairseq 0.12.2 and fairseq-fixed 0.12.3.1). With this
    patch the resumed run has the order of the first run.
    """

    name = "virtual-epochs"
    summary = "a resumed run drew other virtual epochs; it has the first run's"

    def is_needed(self) -> bool:
        """Whether the second half of sixteen sentences depends on the epoch in which the data set was created."""
        orders = []
        with (
            patch.object(sampled_multi_dataset.logger, "disabled", True),
            patch.object(sampled_multi_epoch_dataset.logger, "disabled", True),
        ):
            for first_epoch in (1, 2):
                texts = ListDataset([0] * 16, numpy.ones(16))
                dataset = SampledMultiEpochDataset([texts], epoch=first_epoch, virtual_epoch_size=8)
                dataset.set_epoch(2)
                orders.append([dataset._map_epoch_index_to_global(index) for index in range(8)])
        return orders[0] != orders[1]

    def apply(self) -> None:
        @wrap_method(SampledMultiEpochDataset, "_next_virtual_epoch")
        def _next_virtual_epoch(original: Any, self: SampledMultiEpochDataset, epoch: int) -> None:
            first = epoch - self._get_epoch_start_index(epoch) // self.virtual_epoch_size
            if self._random_global_indices is None and first < epoch:
                original(self, first)
            original(self, epoch)


class WorkersOfFirstEpoch(Patch):
    """The processes that load data keep the data set of the first epoch.

    fairseq tells a data set the epoch's number, on which masks, noise and random crops depend, but goes on with the
    workers that it started before, whose copies of the data set do not learn the number. So a masked language model
    sees the same masks in every epoch until it is resumed (fairseq 0.12.2 and fairseq-fixed 0.12.3.1, --num-workers
    above 0). With this patch each training epoch starts workers with the data set of this epoch. Validation, whose data
    stay the same, keeps its workers.
    """

    name = "workers"
    summary = "workers kept the first epoch's masks and noise; each epoch starts workers of its own"

    def is_needed(self) -> bool:
        """Whether the second epoch is read by the loader, and so by the workers, of the first epoch."""
        loaders = []
        batches = EpochBatchIterator(FairseqDataset(), None, [[0]], num_workers=1, reuse_dataloader=True)
        with patch.object(torch.utils.data, "DataLoader", _Loader), patch.dict(os.environ):
            for _ in range(2):
                list(batches.next_epoch_itr(shuffle=False))
                loaders.append(batches.dataloader)
        return loaders[0] is not None and loaders[0] is loaders[1]

    def apply(self) -> None:
        @wrap_method(EpochBatchIterator, "next_epoch_itr")
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


class _Loader(list[Any]):
    """A stand-in for torch's loader in the probe; it starts no process."""

    def __init__(self, dataset: FairseqDataset, **_: Any) -> None:
        super().__init__([None])


class NoiseFromGlobalGenerator(Patch):
    """The noise of ``--task denoising`` comes from torch's global random numbers.

    fairseq seeds numpy with the seed, the epoch and the item, and then draws masks, insertions and the order of
    sentences from torch. So the noise depends on earlier draws, and a resumed run has other noise than an uninterrupted
    one (fairseq 0.12.2 and fairseq-fixed 0.12.3.1). With this patch it depends on seed, epoch and item.
    """

    name = "denoising"
    summary = "noise came from torch's global generator; it depends on seed, epoch and item"

    def is_needed(self) -> bool:
        """Whether the place of an insertion depends on torch's generator."""
        words = Dictionary()
        dataset = DenoisingDataset.__new__(DenoisingDataset)  # the versions differ in the arguments
        vars(dataset).update(
            dataset=[torch.tensor([words.bos(), *[words.unk()] * 8, words.eos()])],
            vocab=words,
            eos=words.eos(),
            mask_idx=words.add_symbol("<mask>"),
            item_transform_func=None,
            seed=1,
            epoch=1,
            insert_ratio=0.5,
            permute_sentence_ratio=0,
            mask_ratio=0,
            rotate_ratio=0,
            random_ratio=0,
        )
        drawn = []
        with torch.random.fork_rng(devices=[]):
            for seed in range(2):
                torch.default_generator.manual_seed(seed)
                drawn.append(dataset[0]["source"])
        return not drawn[0].equal(drawn[1])

    def apply(self) -> None:
        @wrap_method(DenoisingDataset, "__getitem__")
        def __getitem__(original: Any, self: DenoisingDataset, index: int) -> Any:
            with _DrawFrom(self.seed, self.epoch, index):
                return original(self, index)


# Functions with which the data set draws; ``multinomial`` is for the lengths of masks.
_RANDOM_FUNCTIONS = {torch.randperm, torch.randint, torch.multinomial, torch.Tensor.uniform_}


class _DrawFrom(TorchFunctionMode):
    """Within this context torch draws from a generator with a seed of its own, in this thread alone.

    Another thread may be training, so that the global generator can be neither seeded nor restored here.
    """

    def __init__(self, *seeds: int) -> None:
        super().__init__()
        seed = int(numpy.random.SeedSequence(seeds).generate_state(1)[0])
        self.generator = torch.Generator().manual_seed(seed)

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        drawn = {"generator": self.generator} if func in _RANDOM_FUNCTIONS else {}
        return func(*args, **(kwargs or {}), **drawn)
