"""A dictionary, a task and a batch in memory, in place of a data-bin."""

from typing import Any

import torch
from fairseq.data import Dictionary, LanguagePairDataset
from fairseq.tasks import FairseqTask
from fairseq.tasks.sentence_prediction import SentencePredictionTask
from fairseq.tasks.translation import TranslationTask
from torch import Tensor

from fairseq_luna.commands.converting.parameters import placeholder_dictionary

SOURCE_WORDS, TARGET_WORDS = 24, 28
_SOURCE_LENGTHS, _TARGET_LENGTHS = (7, 3, 1), (4, 8, 2)
_CLASSES = 3

Batch = dict[str, Any]


def make_task(cfg: Any, *, joined: bool) -> FairseqTask:
    """The task of ``cfg``; its two dictionaries are equal if ``joined``."""
    source = _dictionary(SOURCE_WORDS)
    if cfg._name == "sentence_prediction":
        return SentencePredictionTask(cfg, source, _dictionary(_CLASSES))
    return TranslationTask(cfg, source, _dictionary(SOURCE_WORDS if joined else TARGET_WORDS))


def make_batch(task: Any, model: Any) -> Batch:
    """Three sentences, no longer than ``model.max_positions()``: fairseq leaves longer ones out."""
    longest = model.max_positions()
    source = _sentences(task.source_dictionary, _SOURCE_LENGTHS, longest[0] if isinstance(longest, tuple) else longest)
    if isinstance(task, SentencePredictionTask):
        return _texts(source, task.source_dictionary)
    target = _sentences(task.target_dictionary, _TARGET_LENGTHS, longest[1])
    pairs = LanguagePairDataset(
        *(source, [len(words) for words in source], task.source_dictionary),
        *(target, [len(words) for words in target], task.target_dictionary),
        left_pad_source=task.cfg.left_pad_source,
        left_pad_target=task.cfg.left_pad_target,
    )
    return pairs.collater([pairs[index] for index in range(len(pairs))])


def _dictionary(words: int) -> Dictionary:
    return placeholder_dictionary(words + 4)


def _sentences(dictionary: Dictionary, lengths: tuple[int, ...], longest: int) -> list[Tensor]:
    draw = torch.Generator().manual_seed(len(dictionary))
    words = [torch.randint(dictionary.nspecial, len(dictionary), (min(n, longest),), generator=draw) for n in lengths]
    for some in words:
        some[-1] = dictionary.eos()
    return words


def _texts(source: list[Tensor], dictionary: Dictionary) -> Batch:
    padded = torch.nn.utils.rnn.pad_sequence(source, batch_first=True, padding_value=dictionary.pad())
    lengths = torch.tensor([len(words) for words in source])
    return {
        "id": torch.arange(len(source)),
        "nsentences": len(source),
        "ntokens": int(lengths.sum()),
        "net_input": {"src_tokens": padded, "src_lengths": lengths},
        "target": torch.arange(len(source)) % _CLASSES,
    }
