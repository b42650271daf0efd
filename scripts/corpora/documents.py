"""Whole documents: one segment a line and an empty line between documents, at the same lines in both languages."""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from itertools import groupby
from pathlib import Path
from typing import NamedTuple, TextIO

from fairseq_luna.command_line import CommandError
from fairseq_luna.text_files import SEPARATOR, read_lines, read_pairs

# Names of each split's files, without the language.
STEMS = {"train": ("train",), "valid": ("valid", "val"), "test": ("test", "test_2016_flickr")}
# Files that name documents: source, tab, number in the source.
LABELS = "documents"
PIECES, TEXT = "pieces", "text"
Pair = tuple[str, str]


class Source(NamedTuple):
    """The files of both languages by split, and the name of their folder."""

    name: str
    files: dict[str, tuple[Path, Path]]


class Limit(NamedTuple):
    """How long an example may be: in ``segments``, or in ``pieces`` of the longer side with separators and the end."""

    unit: str
    count: int

    def __str__(self) -> str:
        return f"{self.unit}_{self.count}"


def find_sources(folder: Path, languages: Sequence[str]) -> list[Source]:
    """``folder`` itself if it has training text, or else every folder in it.

    Raises:
        CommandError: there is no text, or a split of a source is missing.
    """
    if not folder.is_dir():
        raise CommandError(f"--from-dir {folder}: no such folder")
    inside = [] if _find(folder, "train", languages) else sorted(path for path in folder.iterdir() if path.is_dir())
    sources = []
    for place in inside or [folder]:
        files = {split: found for split in STEMS if (found := _find(place, split, languages))}
        if lacking := [f"{split}.{language}" for split in STEMS if split not in files for language in languages]:
            raise CommandError(f"--from-dir: {place} lacks {', '.join(lacking)}, plain or .gz")
        sources.append(Source(place.resolve().name, files))
    return sources


def _find(folder: Path, split: str, languages: Sequence[str]) -> tuple[Path, Path] | None:
    for stem in STEMS[split]:
        ends = [(folder / f"{stem}.{language}", folder / f"{stem}.{language}.gz") for language in languages]
        first, second = (next((path for path in paths if path.is_file()), None) for paths in ends)
        if first and second:
            return first, second
    return None


def read_documents(first: Path, second: Path) -> Iterator[list[Pair]]:
    """The pairs of segments of each document.

    Raises:
        CommandError: the files differ in lines or empty lines, have no text, or have the separator in it.
    """
    document: list[Pair] = []
    empty = True
    for number, pair in enumerate(read_pairs(first, second), 1):
        present = [bool(segment.strip()) for segment in pair]
        if present[0] != present[1]:
            blank = (first, second)[present[0]]
            raise CommandError(f"{blank}, line {number}: empty, but the other language has text there")
        if any(SEPARATOR in segment for segment in pair):
            raise CommandError(f"{first} and {second.name}, line {number}: has {SEPARATOR}, which is for joining")
        if present[0]:
            document.append(pair)
            empty = False
        elif document:
            yield document
            document = []
    if empty:
        raise CommandError(f"{first}: has no text")
    if document:
        yield document


def gather(sources: Sequence[Source], languages: Sequence[str], folder: Path) -> None:
    """Write ``<split>.<language>``, an empty line after each document, and ``<split>.documents``, a line for each."""
    folder.mkdir(parents=True)
    for split in STEMS:
        with ExitStack() as stack:
            *sides, labels = (stack.enter_context(written(folder / f"{split}.{end}")) for end in (*languages, LABELS))
            for source in sources:
                for number, document in enumerate(read_documents(*source.files[split]), 1):
                    labels.write(f"{source.name}\t{number}\n")
                    for side, segments in zip(sides, zip(*document, strict=True), strict=True):
                        side.write("\n".join(segments) + "\n\n")


def join(raw: Path, pieces: Path, languages: Sequence[str], limit: Limit, target: Path) -> None:
    """Write the examples of every split to ``target``, one a line: ``pieces``, and ``text`` with their documents.

    Args:
        raw: what :func:`gather` wrote.
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


def written(path: Path) -> TextIO:
    """The file, open for text with plain newlines."""
    return path.open("w", encoding="utf-8", newline="\n")
