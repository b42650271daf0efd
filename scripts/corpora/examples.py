"""Consecutive segments of a document as one example, a line with separators between them."""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

from corpora.documents import LABELS, STEMS, written
from fairseq_luna.commands.text_files import SEPARATOR, read_lines, read_pairs

PIECES, TEXT = "pieces", "text"


class Limit(NamedTuple):
    """How long an example may be.

    Args:
        unit: ``pieces``, counted on the longer side with separators and the end of the sentence, or ``segments``.
        count: the largest number of them.
    """

    unit: str
    count: int

    def __str__(self) -> str:
        return f"{self.unit}_{self.count}"


def join(raw: Path, pieces: Path, languages: Sequence[str], limit: Limit, target: Path) -> None:
    """Write the examples of every split to ``target``, one a line: ``pieces``, and ``text`` with their documents.

    Args:
        raw: what :func:`~corpora.documents.gather` wrote.
        pieces: its lines as pieces between spaces.
    """
    for folder in (PIECES, TEXT):
        (target / folder).mkdir(parents=True)
    for split in STEMS:
        names = [f"{split}.{language}" for language in languages]
        paths = [target / folder / name for folder in (TEXT, PIECES) for name in names]
        with ExitStack() as stack:
            files = [stack.enter_context(written(path)) for path in paths]
            labels = stack.enter_context(written(target / TEXT / f"{split}.{LABELS}"))
            for label, example in _examples(raw, pieces, split, names, limit):
                for file, segments in zip(files, zip(*example, strict=True), strict=True):
                    file.write(f" {SEPARATOR} ".join(segments) + "\n")
                labels.write(label + "\n")


def _examples(
    raw: Path, pieces: Path, split: str, names: Sequence[str], limit: Limit
) -> Iterator[tuple[str, list[tuple[str, ...]]]]:
    """Each example's document, and its segments: the text of both languages, then the pieces of both."""
    sides = (read_pairs(*(folder / name for name in names)) for folder in (raw, pieces))
    lines = (text + cut for text, cut in zip(*sides, strict=True))
    documents = (list(group) for is_text, group in groupby(lines, key=lambda line: bool(line[0])) if is_text)
    for label, document in zip(read_lines(raw / f"{split}.{LABELS}"), documents, strict=True):
        for part in parts([tuple(len(cut.split()) for cut in line[2:]) for line in document], limit):
            yield label, document[part]


def parts(sizes: Sequence[tuple[int, ...]], limit: Limit) -> Iterator[slice]:
    """The examples of a document, each filled before the next begins.

    A segment that is longer than the limit is an example of its own, so that every limit has the same text.

    Args:
        sizes: pieces of each segment on both sides.
    """
    start, total = 0, [0, 0]
    for place, size in enumerate(sizes):
        # A separator, or the end of the sentence, follows every segment.
        total = [before + count + 1 for before, count in zip(total, size, strict=True)]
        used = max(total) if limit.unit == PIECES else place - start + 1
        if used > limit.count and place > start:
            yield slice(start, place)
            start, total = place, [count + 1 for count in size]
    yield slice(start, len(sizes))
