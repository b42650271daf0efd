"""Byte-pair encoding of tokenised text by subword-nmt, learned on both languages together."""

import io
import sys
from collections import Counter
from collections.abc import Iterable
from contextlib import AbstractContextManager, nullcontext, redirect_stderr
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from subword_nmt.apply_bpe import BPE
from subword_nmt.learn_bpe import learn_bpe

from fairseq_luna.commands.command_line import CommandError
from fairseq_luna.commands.preparing.parallel import over_lines
from fairseq_luna.commands.text_files import count_lines

_WORDS_REMEMBERED = 500_000


def learn_merges(texts: Iterable[Path], codes: Path, *, merges: int, workers: int) -> None:
    """Write at most ``merges`` merges to ``codes``: fewer if no remaining pair of symbols occurs twice.

    Only the counts of the texts' distinct words are kept in memory.
    """
    counts: Counter[str] = Counter()
    for text in texts:
        for some in over_lines(_count_words, text, what=f"counting words of {text.name}", workers=workers):
            counts.update(some)
    if not counts:
        raise CommandError("the training text has no words")
    # subword-nmt breaks ties by the order of the words.
    words = (f"{word} {count}" for word, count in sorted(counts.items()))
    with codes.open("w", encoding="utf-8", newline="\n") as file, _progress():
        learn_bpe(words, file, merges, is_dict=True)
    learned = count_lines(codes) - 1  # the first line is the version
    if learned < merges:
        print(f"  only {learned:,} merges: no other pair of symbols occurs twice")


def _progress() -> AbstractContextManager[Any]:
    """Hide subword-nmt's progress bar unless stderr is a terminal."""
    return nullcontext() if sys.stderr.isatty() else redirect_stderr(io.StringIO())


def _count_words(lines: list[str]) -> Counter[str]:
    return Counter(word for line in lines for word in line.split(" ") if word)


@dataclass(frozen=True)
class Merge:
    """Lines of tokens to lines of pieces; ``@@`` ends every piece but the last of a word."""

    codes: Path

    def __call__(self, lines: list[str]) -> list[str]:
        bpe = _load(self.codes)
        if len(bpe.cache) > _WORDS_REMEMBERED:
            bpe.cache.clear()
        # A carriage return inside a line would end it for fairseq-preprocess.
        return [bpe.segment(" ".join(line.split())) for line in lines]


@lru_cache
def _load(codes: Path) -> BPE:
    with codes.open(encoding="utf-8") as file:
        return BPE(file)
