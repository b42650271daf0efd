"""Translations of the systems to score: plain lines, or the output of fairseq-generate or fairseq-interactive.

For each sentence, fairseq writes an H- line, the model's tokens, and a D- line, the text after --bpe and --tokenizer.
Without these flags both are equal. T- lines are the binarized reference, in which unknown words are replaced; they only
tell whether the untouched reference that is scored against belongs to this test. Remaining subword pieces are joined.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

from ...subwords import CUT, SPACE, has_escapes, is_blank, join_pieces, restore_characters
from ...text_files import read_lines
from ...usage_error import UsageError

AUTO, NONE, SUBWORD_NMT, SENTENCEPIECE = "auto", "none", "subword-nmt", "sentencepiece"
CHOICES = (AUTO, NONE, SUBWORD_NMT, SENTENCEPIECE)

_STARTS, _GOES_ON = re.compile(SPACE), re.compile(r"(?<=\S)@@( |$)")
_MARKERS = {SUBWORD_NMT: CUT, SENTENCEPIECE: SPACE}
_FEW = 0.1  # share of the lines; with subword-nmt more than half have a marker, even with 30,000 merges
_LINE = re.compile(r"([HDT])-(\d+)(?:\t|$)")
_FIELDS = {"H": 3, "D": 3, "T": 2}


class SystemOutput(NamedTuple):
    """Translations of one system, in the order of the test's sentences, subword pieces joined."""

    text: list[str]  # from the D- lines, or from the H- lines if there are no others
    plain: bool = False  # whether there are no such lines, so that every line is a translation
    targets: Mapping[int, str] = MappingProxyType({})  # from the T- lines, by the number of the sentence
    doubt: str | None = None  # a warning, if subword pieces may remain


Content = tuple[Path, Sequence[str]]  # a file and its lines


def read_translations(shards: Sequence[Path], remove_bpe: str = AUTO, references: Sequence[str] = ()) -> SystemOutput:
    """Read one system's output, in one file or several, in any order and among lines of a log.

    Args:
        shards: files that together have every sentence once.
        remove_bpe: one of ``CHOICES``.
        references: untouched lines; a marker that is in them too is ordinary text.

    In files without such lines, every line is a translation, as ``fairseq-luna translate`` writes them.

    Raises:
        UsageError: no text, a sentence that is missing or repeated, an incomplete line.
        OSError: a file cannot be read.
    """
    return translations_in(read_files(shards), remove_bpe, references)


def read_files(files: Sequence[Path]) -> list[Content]:
    """Read the lines of each file, once: it may be a pipe."""
    return [(file, list(read_lines(file))) for file in files]


def translations_in(
    contents: Sequence[Content], remove_bpe: str = AUTO, references: Sequence[str] = ()
) -> SystemOutput:
    """The translations in ``contents``; see :func:`read_translations`."""
    hypotheses, detokenised, targets = lines_by_number(contents)
    named = ", ".join(str(shard) for shard, _ in contents)
    if not hypotheses and not detokenised:
        lines, doubt = join_subwords([line for _, content in contents for line in content], remove_bpe, references)
        if all(map(is_blank, lines)):
            raise UsageError(f"{named}: has no text")
        return SystemOutput(lines, plain=True, doubt=doubt)
    if hypotheses and detokenised and hypotheses.keys() != detokenised.keys():
        number = min(hypotheses.keys() ^ detokenised.keys())
        raise UsageError(
            f"{named}: sentence {number} has no {'D' if number in hypotheses else 'H'}- line; is it cut off?"
        )
    text, doubt = join_subwords(_in_order(detokenised or hypotheses, named), remove_bpe, references)
    joined = join_subwords(list(targets.values()), remove_bpe, references).lines
    return SystemOutput(text, targets=dict(zip(targets, joined, strict=True)), doubt=doubt)


def count_translations(content: Content) -> int:
    """The number of translations in a file."""
    hypotheses, detokenised, _ = lines_by_number([content])
    return len(hypotheses.keys() | detokenised.keys()) or len(content[1])


def lines_by_number(contents: Sequence[Content]) -> list[dict[int, str]]:
    """The contents of H-, D- and T- lines, each by the number of the sentence; empty for ordinary text.

    "T-34" and "H-2" alone on a line may be text: fairseq writes a tab after them.
    """
    kinds: dict[str, dict[int, str]] = {"H": {}, "D": {}, "T": {}}
    if not any(_LINE.match(line) and "\t" in line for _, lines in contents for line in lines):
        return list(kinds.values())
    for shard, lines in contents:
        for place, line in enumerate(lines, 1):
            mark = _LINE.match(line)
            if not mark:
                continue
            expected = _FIELDS[mark[1]]
            lines_of_kind, number, fields = kinds[mark[1]], int(mark[2]), line.split("\t", expected - 1)
            if len(fields) < expected:
                raise UsageError(f"{shard}, line {place}: '{line}' is cut off; translate again")
            if number in lines_of_kind and mark[1] != "T":  # whose hypothesis is repeated too
                raise UsageError(
                    f"{shard}, line {place}: {mark[1]}-{number} is repeated; "
                    "give each shard once, of one system, made with --nbest 1"
                )
            lines_of_kind[number] = fields[-1]
    return list(kinds.values())


def _in_order(lines: dict[int, str], named: str) -> list[str]:
    ordered = sorted(lines)
    missing = ordered[-1] + 1 - len(ordered)
    if missing:
        first = next(index for index, number in enumerate(ordered) if index != number)
        more = f" and {missing - 1:,} more" if missing > 1 else ""
        raise UsageError(
            f"{named}: sentence {first}{more} of {ordered[-1] + 1:,} missing; give all shards, translated "
            "without --skip-invalid-size-inputs-valid-test and with --user-dir"
        )
    return [lines[number] for number in ordered]


def read_systems(
    groups: Iterable[Sequence[Path]],
    references: Sequence[Sequence[str]],
    remove_bpe: str = AUTO,
    others: Iterable[str] = (),
) -> dict[str, SystemOutput]:
    """Read the systems in each group of files; returns them by the name of their first file.

    Several files of a group are the parts of one system, unless each has as many translations as a reference has lines.

    Args:
        groups: files that are given together.
        references: the lines of each reference.
        remove_bpe: one of ``CHOICES``.
        others: names of systems that were read before.

    Raises:
        UsageError: a file cannot be read as translations, is given as two systems, or is neither one nor a part.
    """
    untouched = [line for reference in references for line in reference]
    systems: dict[str, SystemOutput] = {}
    places = {Path(other).resolve() for other in others}  # a file may be given by two names
    for group in groups:
        for contents in split_systems(read_files(group), len(references[0])):
            first = contents[0][0]
            if first.resolve() in places:
                raise UsageError(f"{first} is given as two systems")
            places.add(first.resolve())
            systems[str(first)] = translations_in(contents, remove_bpe, untouched)
    return systems


def split_systems(contents: Sequence[Content], sentences: int) -> list[Sequence[Content]]:
    """Group files by system.

    Raises:
        UsageError: some files have as many translations as a reference, others do not.
    """
    counts = [count_translations(content) for content in contents]
    if len(contents) == 1 or sentences not in counts:
        return [contents]
    if set(counts) != {sentences}:
        named = ", ".join(
            f"{file} has {count:,} translations" for (file, _), count in zip(contents, counts, strict=True)
        )
        raise UsageError(
            f"{named}, and the reference has {sentences:,} lines: give systems with all of them, or the parts of one"
        )
    return [[content] for content in contents]


class JoinedLines(NamedTuple):
    """Lines of words, and a warning if subword pieces may remain in them."""

    lines: list[str]
    doubt: str | None = None


def join_subwords(lines: Sequence[str], kind: str = AUTO, references: Sequence[str] = ()) -> JoinedLines:
    """Join subword pieces to words, as fairseq's --remove-bpe does; lines of words are unchanged for every ``kind``.

    fairseq-generate joins pieces itself if it is given --remove-bpe or --bpe. Joining SentencePiece pieces twice would
    remove all spaces.

    Args:
        lines: all lines of one output, because a single line may have no marker.
        kind: one of ``CHOICES``.
        references: untouched lines; a marker that is in them too is ordinary text.
    """
    doubt = None
    if kind == AUTO:
        kind, doubt = _detect_subwords(lines, references)
    if kind == SENTENCEPIECE and any(SPACE in line for line in lines):
        return JoinedLines([join_pieces(line) for line in lines], doubt)
    if kind == SUBWORD_NMT:
        return JoinedLines([_GOES_ON.sub("", line).rstrip() for line in lines], doubt)
    if any(map(has_escapes, references)):  # private-use characters are ordinary text
        return JoinedLines(list(lines), doubt)
    return JoinedLines([restore_characters(line) for line in lines], doubt)


def marker_in(lines: Sequence[str]) -> str | None:
    """The subword marker of ``lines``, if more than half of them have one; None for words."""
    if _share(lines, _STARTS) > 0.5:
        return SPACE
    return _MARKERS[SUBWORD_NMT] if _share(lines, _GOES_ON) > 0.5 else None


def _detect_subwords(lines: Sequence[str], references: Sequence[str]) -> tuple[str, str | None]:
    """The kind of subword pieces in ``lines``, and a warning if that is not certain."""
    # Every line of SentencePiece pieces has a word start; in a few lines the marker may be a character of the text.
    if (marked := _share(lines, _STARTS)) > 0.5:
        kind, least, mark = SENTENCEPIECE, 0.5, _STARTS
    else:
        marked, kind, least, mark = _share(lines, _GOES_ON), SUBWORD_NMT, _FEW, _GOES_ON
    if not marked:
        return NONE, None
    also = _share(references, mark)
    if marked >= least and 2 * also <= marked:
        return kind, None
    where = f"{marked:.1%} of the lines" + (f", and in {also:.1%} of the references'," if also else "")
    return NONE, f"'{_MARKERS[kind]}' in {where} is taken for text; if it is of pieces, give --remove-bpe {kind}"


def _share(lines: Sequence[str], mark: re.Pattern[str]) -> float:
    """The share of lines with ``mark`` among the lines that are not empty."""
    written = [line for line in lines if line]
    return sum(bool(mark.search(line)) for line in written) / max(1, len(written))
