"""Joining the pieces of subword-nmt or SentencePiece to words, as fairseq's --remove-bpe does."""

import re
from collections.abc import Sequence

from ...subwords import SPACE, joined, restored

AUTO, NONE, SUBWORD_NMT, SENTENCEPIECE = "auto", "none", "subword-nmt", "sentencepiece"
CHOICES = (AUTO, NONE, SUBWORD_NMT, SENTENCEPIECE)

_GOES_ON = re.compile(r"(?<=\S)@@( |$)")


def join(lines: Sequence[str], kind: str = AUTO) -> list[str]:
    """Lines of pieces as lines of words; lines of words are unchanged for every ``kind``.

    fairseq-generate joins pieces itself if it has --remove-bpe or --bpe; joining SentencePiece's twice would remove all
    spaces.

    Args:
        lines: all lines of one output, because a single line may have no mark of its kind.
        kind: one of ``CHOICES``.
    """
    if kind == AUTO:
        kind = _detect(lines)
    if kind == SENTENCEPIECE and any(SPACE in line for line in lines):
        return [joined(line) for line in lines]
    if kind == SUBWORD_NMT:
        return [_GOES_ON.sub("", line).rstrip() for line in lines]
    return [restored(line) for line in lines]


def _detect(lines: Sequence[str]) -> str:
    written = [line for line in lines if line]
    # Every line of pieces has a word start; a few may be characters of the text.
    if 2 * sum(SPACE in line for line in written) > len(written):
        return SENTENCEPIECE
    return SUBWORD_NMT if any(_GOES_ON.search(line) for line in written) else NONE
