"""Which word of the source each word of a translation is aligned with, and the words that the model does not know."""

from collections.abc import Sequence
from os import PathLike
from pathlib import Path
from typing import Any

from ...subwords import CUT, SPACE
from ...usage_error import UsageError

Pairs = Sequence[tuple[int, int]]


def words_of_pieces(pieces: Sequence[str], mark: str | None) -> list[int]:
    """The number of the word, counted from 0 between spaces, in which each of ``pieces`` stands.

    Args:
        mark: subword marker of the pieces, see :func:`fairseq_luna.subwords.subword_marker`; None: each is a word.
    """
    if mark is None:
        return list(range(len(pieces)))
    words, begun, inside = [], 0, False
    for piece in pieces:
        if mark == CUT:
            words.append(begun)
            begun += not piece.endswith(CUT)
            continue
        inside = inside and not piece.startswith(SPACE)
        words.append(begun - inside)  # a piece of markers alone belongs to the word that follows
        for character in piece:
            begun += character != SPACE and not inside
            inside = character != SPACE
    return words


def word_pairs(pairs: Pairs, source: Sequence[int], target: Sequence[int]) -> list[tuple[int, int]]:
    """``pairs`` of pieces as pairs of the words in which they stand, each once, in the order of the target.

    Args:
        source, target: of :func:`words_of_pieces`.
    """
    aligned = {(source[i], target[j]) for i, j in pairs}
    return sorted(aligned, key=lambda pair: (pair[1], pair[0]))


def replacements(replace_unk: Any) -> dict[str, str]:
    """Translations of source words, read from the file ``replace_unk``; empty for True or "".

    Raises:
        TypeError: that is neither a boolean nor a file's name.
        UsageError: the file cannot be read, or a line is not a word of the source, a space and its translation.
    """
    if not isinstance(replace_unk, bool | str | PathLike):
        raise TypeError(f"replace_unk: must be True or the name of a file; there is {replace_unk!r:.50}")
    if isinstance(replace_unk, bool) or not replace_unk:
        return {}
    try:
        lines = [line.split() for line in Path(replace_unk).read_text(encoding="utf-8").splitlines()]
        return {word: translation for word, translation in lines}
    except OSError as error:
        raise UsageError(f"replace_unk {replace_unk}: {error.strerror}; give a dictionary's file, or none") from error
    except ValueError as error:
        raise UsageError(f"replace_unk {replace_unk}: a line must have a word, a space and its translation") from error


def with_replacements(
    target: Sequence[str], source: Sequence[str], pairs: Pairs, words: dict[str, str], unknown: str
) -> list[str]:
    """``target`` with the piece of the ``source`` that is aligned in place of each ``unknown`` one.

    Args:
        pairs: places in ``source`` and ``target``.
        words: what to put there instead, by the piece of the source.
    """
    aligned = {j: source[i] for i, j in pairs}
    return [
        words.get(aligned[place], aligned[place]) if piece == unknown and place in aligned else piece
        for place, piece in enumerate(target)
    ]
