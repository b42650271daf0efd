"""Subword markers of SentencePiece and subword-nmt, and characters that no piece can have."""

import unicodedata
from typing import Any

SPACE = "\u2581"  # SentencePiece's marker, before the first piece of a word
CUT = "@@"  # subword-nmt's marker, after every piece of a word except the last
FEW = 0.01  # share of the occurrences in a dictionary: text of whole words may have a marker by chance
# No piece can have these characters: fairseq splits a line at white space, and SPACE is the marker. The SentencePiece
# models of "fairseq-luna prepare" replace each by a private-use character, which :func:`restore_characters` turns back.
NO_PIECE = (*(char for char in map(chr, range(0x10000)) if char.isspace() and char != " "), SPACE)
# If these strings are in a text, their first character is escaped too: fairseq would read them as its own symbols.
SPECIAL = ("<s>", "<pad>", "</s>", "<unk>")
_PRIVATE_USE = 0xF0000


def subword_marker(dictionary: Any) -> str | None:
    """The subword marker of a fairseq ``dictionary``, SPACE or CUT; None if it has whole words."""
    words = range(dictionary.nspecial, len(dictionary))
    total = sum(dictionary.count[word] for word in words)
    for mark, marked in ((SPACE, str.startswith), (CUT, str.endswith)):
        if sum(dictionary.count[word] for word in words if marked(dictionary[word], mark)) > FEW * total:
            return mark
    return None


def is_blank(text: str) -> bool:
    """Whether ``text``, whole or in subwords, has only white space, subword markers and invisible characters."""
    return all(x == SPACE or x.isspace() or unicodedata.category(x) in ("Cc", "Cf") for x in restore_characters(text))


def escape_character(char: str) -> str:
    """The private-use character that stands for ``char`` in a piece."""
    return chr(_PRIVATE_USE + ord(char))


_RESTORED = {ord(escape_character(char)): char for char in (*NO_PIECE, SPECIAL[0][0])}


def restore_characters(text: str) -> str:
    """``text`` with the characters that :func:`escape_character` replaced."""
    return text.translate(_RESTORED)


def join_pieces(pieces: str) -> str:
    """The text of SentencePiece ``pieces``, which are separated by spaces."""
    return restore_characters(pieces.replace(" ", "").replace(SPACE, " ").strip())
