"""The noise of ``--task denoising`` comes from torch's global random numbers.

fairseq seeds numpy with the seed, the epoch and the item, and then draws masks, insertions and the order of sentences
from torch. So the noise depends on what was drawn before, and a resumed run has other noise than an uninterrupted one
(fairseq 0.12.2 and fairseq-fixed 0.12.3.1). With this patch it depends on seed, epoch and item.
"""

from collections.abc import Callable
from typing import Any

import numpy
import torch
from fairseq.data import Dictionary
from fairseq.data.denoising_dataset import DenoisingDataset
from torch.overrides import TorchFunctionMode

from fairseq_luna.replacing import replaces

SUMMARY = "noise came from torch's global generator; it depends on seed, epoch and item"

# What the data set draws with; ``multinomial`` for the lengths of masks.
_RANDOM = {torch.randperm, torch.randint, torch.multinomial, torch.Tensor.uniform_}


class _DrawFrom(TorchFunctionMode):
    """Within this context torch draws from a generator with a seed of its own, in this thread alone.

    Another thread may be training, so the global generator can be neither seeded nor restored here.
    """

    def __init__(self, *seeds: int) -> None:
        super().__init__()
        seed = int(numpy.random.SeedSequence(seeds).generate_state(1)[0])
        self.generator = torch.Generator().manual_seed(seed)

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        drawn = {"generator": self.generator} if func in _RANDOM else {}
        return func(*args, **(kwargs or {}), **drawn)


def is_needed() -> bool:
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


def apply() -> None:
    @replaces(DenoisingDataset, "__getitem__")
    def __getitem__(original: Any, self: DenoisingDataset, index: int) -> Any:
        with _DrawFrom(self.seed, self.epoch, index):
            return original(self, index)
