"""Whole documents: one segment a line and an empty line between documents, at the same lines in both languages."""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple, TextIO

from corpora.sources import existing
from fairseq_luna.commands.command_line import CommandError
from fairseq_luna.commands.text_files import SEPARATOR, read_pairs

# Names of each split's files, without the language.
STEMS = {"train": ("train",), "valid": ("valid", "val"), "test": ("test", "test_2016_flickr")}
# Files that name documents: source, tab, number in the source.
LABELS = "documents"
Pair = tuple[str, str]


class Source(NamedTuple):
    """The files of both languages by split, and the name of their folder."""

    name: str
    files: dict[str, tuple[Path, Path]]


def find_sources(folder: Path, languages: Sequence[str]) -> list[Source]:
    """``folder`` itself if it has training text, or else every folder in it.

    Raises:
        CommandError: there is no text, or a split of a source is missing.
    """
    if not folder.is_dir():
        raise CommandError(f"--from-dir {folder}: no such folder")
    is_source = _find(folder, "train", languages) is not None
    inside = [] if is_source else sorted(path for path in folder.iterdir() if path.is_dir())
    sources = []
    for place in inside or [folder]:
        files = {split: _find(place, split, languages) for split in STEMS}
        lacking = [f"{split}.{language}" for split, found in files.items() if not found for language in languages]
        if lacking:
            raise CommandError(f"--from-dir: {place} lacks {', '.join(lacking)}, plain or .gz")
        sources.append(Source(place.resolve().name, {split: found for split, found in files.items() if found}))
    return sources


def _find(folder: Path, split: str, languages: Sequence[str]) -> tuple[Path, Path] | None:
    for stem in STEMS[split]:
        first, second = (existing(folder, f"{stem}.{language}") for language in languages)
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


def written(path: Path) -> TextIO:
    """The file, open for text with plain newlines."""
    return path.open("w", encoding="utf-8", newline="\n")
