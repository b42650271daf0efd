"""Pieces of words, as SentencePiece and subword-nmt mark them."""

import unicodedata
from typing import Any

SPACE = "\u2581"  # SentencePiece's, before the first piece of a word
CUT = "@@"  # subword-nmt's, after every piece of a word but the last
FEW = 0.01  # of a dictionary's occurrences: text of whole words may have a mark by chance


def mark_of(dictionary: Any) -> str | None:
    """The mark, SPACE or CUT, of the pieces in fairseq's ``dictionary``; None: it has whole words."""
    words = range(dictionary.nspecial, len(dictionary))
    total = sum(dictionary.count[word] for word in words)
    for mark, marked in ((SPACE, str.startswith), (CUT, str.endswith)):
        if sum(dictionary.count[word] for word in words if marked(dictionary[word], mark)) > FEW * total:
            return mark
    return None


def says_nothing(text: str) -> bool:
    """Whether ``text``, whole or in pieces, has nothing but white space, its marks, and invisible characters."""
    return all(x == SPACE or x.isspace() or unicodedata.category(x) in ("Cc", "Cf") for x in text)
