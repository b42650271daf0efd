"""Scores of whole documents and of their segments, by the source of the test's text.

The reference's lines are consecutive parts of documents, with a separator between two segments, as
scripts/prepare_documents.py writes them; a file beside it says which document each line is of.
"""

from collections import Counter
from collections.abc import Sequence
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

from sacrebleu.metrics import BLEU

from ...usage_error import UsageError
from ..text_files import SEPARATOR, read_lines
from .measures import sacrebleu


class BySource(NamedTuple):
    """The scores of one source's text."""

    source: str | None  # None for all text
    documents: int
    document_bleu: float  # sacreBLEU's, a whole document in place of a sentence
    segments: int  # in the references
    aligned: int  # those in lines whose translation has as many separators as its reference
    segment_bleu: float | None  # of the aligned ones; None if there are none


def read_labels(file: Path, lines: int) -> list[str]:
    """The document of each line of the reference: its source, a tab, its number there.

    If a source has a single document, such as captions, each of its lines is one: BLEU of the whole would not see
    which caption was translated.

    Raises:
        UsageError: not such a file, or of another reference.
    """
    labels = list(read_lines(file))
    if len(labels) != lines:
        raise UsageError(f"--documents {file}: {len(labels):,} lines, but the reference has {lines:,}")
    for number, label in enumerate(labels, 1):
        if label.count("\t") != 1:
            raise UsageError(f"--documents {file}, line {number}: must be a source, a tab and a document's number")
    documents = Counter(map(_source, set(labels)))
    return [f"{label}.{line}" if documents[_source(label)] == 1 else label for line, label in enumerate(labels, 1)]


def lines_of(sources: Sequence[str], labels: Sequence[str]) -> list[int]:
    """The places of these sources' lines; UsageError if there is no such source."""
    present = dict.fromkeys(map(_source, labels))
    for source in sources:
        if source not in present:
            raise UsageError(f"--sources {source}: the sources are {', '.join(present)}")
    return [line for line, label in enumerate(labels) if _source(label) in sources]


def whole(lines: Sequence[str], labels: Sequence[str]) -> list[str]:
    """The text of each document, without separators."""
    return [
        " ".join(segment for _, line in group for segment in _segments(line) if segment)
        for _, group in groupby(zip(labels, lines, strict=True), key=lambda each: each[0])
    ]


def by_source(
    hypotheses: Sequence[str],
    references: Sequence[str],
    labels: Sequence[str],
    *,
    target: str | None = None,
    lowercase: bool = False,
) -> list[BySource]:
    """Scores of the documents of each source, if there are several, and of all."""
    of_source: dict[str, list[int]] = {}
    for line, label in enumerate(labels):
        of_source.setdefault(_source(label), []).append(line)
    groups: dict[str | None, Sequence[int]] = dict(of_source.items() if len(of_source) > 1 else ())
    groups[None] = range(len(labels))
    bleu = sacrebleu(target, lowercase=lowercase)
    return [
        _scores(bleu, source, *([side[line] for line in lines] for side in (hypotheses, references, labels)))
        for source, lines in groups.items()
    ]


def _scores(
    bleu: BLEU, source: str | None, hypotheses: list[str], references: list[str], labels: list[str]
) -> BySource:
    documents = whole(references, labels)
    pairs = [(_segments(ours), _segments(theirs)) for ours, theirs in zip(hypotheses, references, strict=True)]
    aligned = [each for ours, theirs in pairs if len(ours) == len(theirs) for each in zip(ours, theirs, strict=True)]
    ours, theirs = ([pair[side] for pair in aligned] for side in (0, 1))
    return BySource(
        source,
        documents=len(documents),
        document_bleu=bleu.corpus_score(whole(hypotheses, labels), [documents]).score,
        segments=sum(len(theirs) for _, theirs in pairs),
        aligned=len(aligned),
        segment_bleu=bleu.corpus_score(ours, [theirs]).score if aligned else None,
    )


def _source(label: str) -> str:
    return label.split("\t")[0]


def _segments(line: str) -> list[str]:
    return [segment.strip() for segment in line.split(SEPARATOR)]
