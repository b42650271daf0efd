"""Putting words together again from subword-nmt's or SentencePiece's pieces, as fairseq's --remove-bpe does."""

import re
from collections.abc import Sequence

AUTO, NONE, SUBWORD_NMT, SENTENCEPIECE = "auto", "none", "subword-nmt", "sentencepiece"
CHOICES = (AUTO, NONE, SUBWORD_NMT, SENTENCEPIECE)

_WORD_START = "\u2581"  # ▁, where SentencePiece had a space
_GOES_ON = re.compile(r"(?<=\S)@@( |$)")


def join(lines: Sequence[str], kind: str = AUTO) -> list[str]:
    """Lines of pieces as lines of words. Lines of words, whatever ``kind`` says, stay as they are.

    fairseq-generate joins pieces itself where it has --remove-bpe or --bpe, and doing it a second time for
    SentencePiece would glue all words of a sentence together.

    Args:
        lines: all from one output, because a single line may have no mark of what it is.
        kind: one of ``CHOICES``.
    """
    if kind == AUTO:
        kind = _detect(lines)
    if kind == SENTENCEPIECE and any(_WORD_START in line for line in lines):
        return [line.replace(" ", "").replace(_WORD_START, " ").strip() for line in lines]
    if kind == SUBWORD_NMT:
        return [_GOES_ON.sub("", line).rstrip() for line in lines]
    return list(lines)


def _detect(lines: Sequence[str]) -> str:
    written = [line for line in lines if line]
    # A word's start is in every line of pieces; a single one may be a character of the text.
    if 2 * sum(_WORD_START in line for line in written) > len(written):
        return SENTENCEPIECE
    return SUBWORD_NMT if any(_GOES_ON.search(line) for line in written) else NONE
