"""Which characters SentencePiece replaces before it cuts: as few as possible, so that text comes back as it was.

SentencePiece's own rules, such as nmt_nfkc, write full-width punctuation, superscripts and fractions as others, also in
the text that a model learns to write. Here a character that the training text has stays as it is. Only one that it
lacks, and that would be unknown, becomes an equivalent by Unicode's normalization forms, where the text has that: a
no-break space, a ligature, or an accent that follows its letter.
"""

import sys
import unicodedata
from collections import Counter
from collections.abc import Container, Iterable, Iterator
from pathlib import Path
from typing import Literal

from ...subwords import NO_PIECE, SPACE, SPECIAL, escaped
from ..text_files import read_lines

NORMALIZATION, DENORMALIZATION = "normalization.tsv", "denormalization.tsv"
# From the form that changes least to the one that changes most.
_FORMS: tuple[Literal["NFC", "NFD", "NFKC", "NFKD"], ...] = ("NFC", "NFD", "NFKC", "NFKD")
# Line breaks and other controls that fairseq reads as white space, and characters without a shape.
_CONTROLS, _INVISIBLE = ("Cc", "Zl", "Zp"), ("Cc", "Cf")
Rule = tuple[str, str]


def characters(texts: Iterable[Path], coverage: float) -> set[str]:
    """The commonest characters of ``texts``, as many as make this share of all."""
    counts: Counter[str] = Counter()
    for text in texts:
        for line in read_lines(text):
            counts.update(line)
    total, seen, found = sum(counts.values()), 0, set()
    for char, count in counts.most_common():
        if seen >= coverage * total:
            break
        found.add(char)
        seen += count
    return found


def write_rules(known: Container[str], folder: Path) -> tuple[Path, Path]:
    """Write the rules for a text of the characters ``known`` to ``folder``, for cutting and for joining."""
    kept = [(char, escaped(char)) for char in NO_PIECE if char in known and unicodedata.category(char) not in _CONTROLS]
    kept += [(name, escaped(name[0]) + name[1:]) for name in SPECIAL]
    _write(folder / NORMALIZATION, [*kept, *_replaced(known)])
    _write(folder / DENORMALIZATION, sorted({(after[0], before[0]) for before, after in kept}))
    return folder / NORMALIZATION, folder / DENORMALIZATION


def _replaced(known: Container[str]) -> Iterator[Rule]:
    """The rules for white space and for what is not ``known``."""
    for char in map(chr, range(sys.maxunicode + 1)):
        kind = unicodedata.category(char)
        if char in "\n\0 " or kind in ("Cs", "Cn", "Co"):
            continue
        if char in known:
            if char.isspace() and kind in _CONTROLS:
                yield char, " "
            else:
                yield from _compositions(char, known)
        elif char.isspace():
            yield char, " "
        elif kind in _INVISIBLE:
            yield char, ""
        elif char != SPACE and (other := _equivalent(char, known)) is not None:
            yield char, other


def _compositions(char: str, known: Container[str]) -> Iterator[Rule]:
    """The rule for the same character written as several, such as a letter and its accent, if one is not ``known``."""
    parts = unicodedata.normalize("NFD", char)
    if parts != char and not all(part in known for part in parts):
        yield parts, char


def _equivalent(char: str, known: Container[str]) -> str | None:
    forms = (unicodedata.normalize(form, char) for form in _FORMS)
    return next((form for form in forms if all(part == " " or part in known for part in form)), None)


def _write(path: Path, rules: Iterable[Rule]) -> None:
    """Code points in hexadecimal, as SentencePiece reads them."""
    with path.open("w", encoding="utf-8", newline="\n") as file:
        for rule in rules:
            file.write("\t".join(" ".join(f"{ord(char):X}" for char in side) for side in rule) + "\n")
