"""Joining the pieces of subword-nmt or SentencePiece to words, as fairseq's --remove-bpe does."""

import re
from collections.abc import Sequence
from typing import NamedTuple

from ...subwords import SPACE, joined, restored

AUTO, NONE, SUBWORD_NMT, SENTENCEPIECE = "auto", "none", "subword-nmt", "sentencepiece"
CHOICES = (AUTO, NONE, SUBWORD_NMT, SENTENCEPIECE)

_STARTS, _GOES_ON = re.compile(SPACE), re.compile(r"(?<=\S)@@( |$)")
_MARKS = {SUBWORD_NMT: "@@", SENTENCEPIECE: SPACE}
_FEW = 0.1  # share of the lines; more than half of subword-nmt's have a mark, even with 30,000 merges


class Joined(NamedTuple):
    """Lines of words, and a warning if it is not certain that they are."""

    lines: list[str]
    doubt: str | None = None


def join(lines: Sequence[str], kind: str = AUTO, references: Sequence[str] = ()) -> Joined:
    """Lines of pieces as lines of words; lines of words are unchanged for every ``kind``.

    fairseq-generate joins pieces itself if it has --remove-bpe or --bpe; joining SentencePiece's twice would remove all
    spaces.

    Args:
        lines: all lines of one output, because a single line may have no mark of its kind.
        kind: one of ``CHOICES``.
        references: untouched lines; a mark that is in them too is ordinary text.
    """
    doubt = None
    if kind == AUTO:
        kind, doubt = _detect(lines, references)
    if kind == SENTENCEPIECE and any(SPACE in line for line in lines):
        return Joined([joined(line) for line in lines], doubt)
    if kind == SUBWORD_NMT:
        return Joined([_GOES_ON.sub("", line).rstrip() for line in lines], doubt)
    return Joined([restored(line) for line in lines], doubt)


def marker_in(lines: Sequence[str]) -> str | None:
    """The marker of subwords that so many lines have that these are pieces; None for words."""
    if _share(lines, _STARTS) > 0.5:
        return SPACE
    return _MARKS[SUBWORD_NMT] if _share(lines, _GOES_ON) > 0.5 else None


def _detect(lines: Sequence[str], references: Sequence[str]) -> tuple[str, str | None]:
    """The kind of pieces in ``lines``, and a doubt whether they are pieces."""
    # Every line of SentencePiece's has a word start; a few may be characters of the text.
    if (marked := _share(lines, _STARTS)) > 0.5:
        found, least, mark = SENTENCEPIECE, 0.5, _STARTS
    else:
        marked, found, least, mark = _share(lines, _GOES_ON), SUBWORD_NMT, _FEW, _GOES_ON
    if not marked:
        return NONE, None
    also = _share(references, mark)
    if marked >= least and 2 * also <= marked:
        return found, None
    where = f"{marked:.1%} of the lines" + (f", and in {also:.1%} of the references'," if also else "")
    return NONE, f"'{_MARKS[found]}' in {where} is taken for text; if it is of pieces, give --remove-bpe {found}"


def _share(lines: Sequence[str], mark: re.Pattern[str]) -> float:
    """The share of the lines with a ``mark``, of those with text."""
    written = [line for line in lines if line]
    return sum(bool(mark.search(line)) for line in written) / max(1, len(written))
