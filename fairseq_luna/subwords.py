"""Subword markers of SentencePiece and subword-nmt, and characters that no piece can have."""

import re
import unicodedata
from typing import Any

SPACE = "\u2581"  # SentencePiece's marker, before the first piece of a word
CUT = "@@"  # subword-nmt's marker, after every piece of a word except the last
FEW = 0.01  # share of the occurrences in a dictionary: text of whole words may have a marker by chance
# Line breaks and other control characters, which are layout: "fairseq-luna prepare" reads them as spaces.
CONTROLS = ("Cc", "Zl", "Zp")
# No piece can have these characters: fairseq splits a line at white space, and SPACE is the marker. The SentencePiece
# models of "fairseq-luna prepare" replace each by a private-use character, which :func:`restore_characters` turns back.
NO_PIECE = (
    *(c for c in map(chr, range(0x10000)) if c.isspace() and c != " " and unicodedata.category(c) not in CONTROLS),
    SPACE,
)
# If these strings are in a text, their first character is escaped too: fairseq would read them as its own symbols.
SPECIAL = ("<s>", "<pad>", "</s>", "<unk>")
_PRIVATE_USE = 0xF0000
# In pieces, this private-use character stands before a private-use character that is the text's own.
LITERAL_MARK = chr(_PRIVATE_USE)


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
    shown = restore_characters(text) if SPACE in text else text  # only pieces have escaped characters
    return all(x == SPACE or x.isspace() or unicodedata.category(x) in ("Cc", "Cf") for x in shown)


def escape_character(char: str) -> str:
    """The private-use character that stands for ``char`` in a piece; for such a character, LITERAL_MARK and itself."""
    return f"{LITERAL_MARK}{char}" if char in RESERVED else chr(_PRIVATE_USE + ord(char))


_RESTORED = {chr(_PRIVATE_USE + ord(char)): char for char in (*NO_PIECE, SPECIAL[0][0])}
# The private-use characters with a meaning in pieces.
RESERVED = (LITERAL_MARK, *_RESTORED)
_ESCAPE_SEQUENCE = re.compile(f"{LITERAL_MARK}([{''.join(RESERVED)}])|[{''.join(_RESTORED)}]")


def restore_characters(text: str) -> str:
    """``text`` with the characters that :func:`escape_character` replaced."""
    return _ESCAPE_SEQUENCE.sub(lambda match: match[1] or _RESTORED[match[0]], text)


def has_escapes(text: str) -> bool:
    """Whether a character of ``text`` may stand for another one."""
    return _ESCAPE_SEQUENCE.search(text) is not None


def escapes_characters(processor: Any) -> bool:
    """Whether the SentencePiece model ``processor`` has the rules of :func:`escape_character`."""
    return bool(processor.decode_pieces([escape_character(SPECIAL[0][0])]) == SPECIAL[0][0])


def join_pieces(pieces: str, *, escaped: bool = True) -> str:
    """The text of SentencePiece ``pieces``, which are separated by spaces.

    Args:
        escaped: whether the pieces may have escaped characters.
    """
    text = pieces.replace(" ", "").replace(SPACE, " ").strip()
    return restore_characters(text) if escaped else text
