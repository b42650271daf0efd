"""Pieces of words, as SentencePiece and subword-nmt mark them."""

import unicodedata
from typing import Any

SPACE = "\u2581"  # SentencePiece's, before the first piece of a word
CUT = "@@"  # subword-nmt's, after every piece of a word but the last
FEW = 0.01  # of a dictionary's occurrences: text of whole words may have a mark by chance
# No piece can have these characters: fairseq divides a line at white space, and SPACE is the mark. The models of
# "fairseq-luna prepare" replace each by one of Unicode's private use, which :func:`restored` turns back.
NO_PIECE = (*(char for char in map(chr, range(0x10000)) if char.isspace() and char != " "), SPACE)
# Also escaped is the first character of these where they stand in text. As pieces they would be read as fairseq's own.
SPECIAL = ("<s>", "<pad>", "</s>", "<unk>")
_PRIVATE_USE = 0xF0000


def mark_of(dictionary: Any) -> str | None:
    """The mark, SPACE or CUT, of the pieces in fairseq's ``dictionary``; None: it has whole words."""
    words = range(dictionary.nspecial, len(dictionary))
    total = sum(dictionary.count[word] for word in words)
    for mark, marked in ((SPACE, str.startswith), (CUT, str.endswith)):
        if sum(dictionary.count[word] for word in words if marked(dictionary[word], mark)) > FEW * total:
            return mark
    return None


def is_blank(text: str) -> bool:
    """Whether ``text``, whole or in pieces, has nothing but white space, its marks, and invisible characters."""
    return all(x == SPACE or x.isspace() or unicodedata.category(x) in ("Cc", "Cf") for x in restored(text))


def escaped(char: str) -> str:
    """The character of private use that stands for ``char`` in a piece."""
    return chr(_PRIVATE_USE + ord(char))


_RESTORED = {ord(escaped(char)): char for char in (*NO_PIECE, SPECIAL[0][0])}


def restored(text: str) -> str:
    """``text`` with the characters that :func:`escaped` replaced."""
    return text.translate(_RESTORED)


def joined(pieces: str) -> str:
    """The text of SentencePiece's ``pieces``, which stand between spaces."""
    return restored(pieces.replace(" ", "").replace(SPACE, " ").strip())
