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

from ...text_files import SEPARATOR, read_lines
from ...usage_error import UsageError
from .metrics import DEFAULTS, ScoringOptions, bleu_of


class SourceScores(NamedTuple):
    """Scores of the text of one source."""

    source: str | None  # None for all text
    documents: int
    document_bleu: float  # sacreBLEU's, a whole document in place of a sentence
    segments: int  # number of segments in the first reference
    aligned: int  # segments of lines whose translation has as many separators as every reference
    segment_bleu: float | None  # BLEU of the aligned segments; None if there are none


def read_labels(file: Path, lines: int) -> list[str]:
    """The document of each line of the reference: its source, a tab, its number there.

    If a source has a single document, such as captions, each of its lines is one: BLEU of the whole would not see
    which caption was translated.

    Raises:
        UsageError: the file has another form or belongs to another reference, or other lines are inside a document.
    """
    labels = ["\t".join(map(str.strip, label.split("\t"))) for label in read_lines(file)]
    if len(labels) != lines:
        raise UsageError(f"--documents {file}: {len(labels):,} lines, but the reference has {lines:,}")
    for number, label in enumerate(labels, 1):
        if label.count("\t") != 1 or "" in label.split("\t"):
            raise UsageError(f"--documents {file}, line {number}: must be a source, a tab and a document's number")
    _check_order(labels, f"--documents {file}")
    documents = Counter(map(_source, set(labels)))
    return [f"{label}.{line}" if documents[_source(label)] == 1 else label for line, label in enumerate(labels, 1)]


def _check_order(labels: Sequence[str], named: str) -> None:
    """Raises UsageError if a label stands again after others: its lines would be scored as two documents."""
    last: dict[str, int] = {}
    for number, label in enumerate(labels, 1):
        if label in last and last[label] != number - 1:
            source, document = label.split("\t")
            raise UsageError(
                f"{named}, lines {last[label]} and {number}: both are of document {document} of {source}, but others "
                "are between them; give each document a number of its own, or put its lines together"
            )
        last[label] = number


def lines_of_sources(sources: Sequence[str], labels: Sequence[str]) -> list[int]:
    """Indices of the lines of ``sources``. Raises UsageError for an unknown source."""
    present = dict.fromkeys(map(_source, labels))
    for source in sources:
        if source not in present:
            raise UsageError(f"--sources {source}: the sources are {', '.join(present)}")
    return [line for line, label in enumerate(labels) if _source(label) in sources]


def join_documents(lines: Sequence[str], labels: Sequence[str]) -> list[str]:
    """The text of each document, without separators."""
    return [
        " ".join(segment for _, line in group for segment in _segments(line) if segment)
        for _, group in groupby(zip(labels, lines, strict=True), key=lambda each: each[0])
    ]


def scores_by_source(
    hypotheses: Sequence[str],
    references: Sequence[Sequence[str]],
    labels: Sequence[str],
    options: ScoringOptions = DEFAULTS,
) -> list[SourceScores]:
    """Score the documents of each source, if there are several, and of all sources together."""
    of_source: dict[str, list[int]] = {}
    for line, label in enumerate(labels):
        of_source.setdefault(_source(label), []).append(line)
    groups: dict[str | None, Sequence[int]] = dict(of_source.items() if len(of_source) > 1 else ())
    groups[None] = range(len(labels))
    bleu = bleu_of(options)
    return [
        _scores(
            bleu, source, select(lines, hypotheses), [select(lines, each) for each in references], select(lines, labels)
        )
        for source, lines in groups.items()
    ]


def select(places: Sequence[int], lines: Sequence[str]) -> list[str]:
    return [lines[place] for place in places]


def _scores(
    bleu: BLEU, source: str | None, hypotheses: list[str], references: list[list[str]], labels: list[str]
) -> SourceScores:
    documents = [join_documents(reference, labels) for reference in references]
    # Of each line, the segments of the hypothesis and of every reference.
    lines = [[_segments(side) for side in line] for line in zip(hypotheses, *references, strict=True)]
    even = [line for line in lines if len(set(map(len, line))) == 1]
    aligned = [segments for line in even for segments in zip(*line, strict=True)]
    hypothesis_segments, *reference_segments = zip(*aligned, strict=True) if aligned else ((), ())
    return SourceScores(
        source,
        documents=len(documents[0]),
        document_bleu=bleu.corpus_score(join_documents(hypotheses, labels), documents).score,
        segments=sum(len(line[1]) for line in lines),
        aligned=len(aligned),
        segment_bleu=bleu.corpus_score(hypothesis_segments, reference_segments).score if aligned else None,
    )


def _source(label: str) -> str:
    return label.split("\t")[0]


def _segments(line: str) -> list[str]:
    return [segment.strip() for segment in line.split(SEPARATOR)]
