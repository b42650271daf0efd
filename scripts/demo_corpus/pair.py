"""A piece of text in both languages."""

from typing import NamedTuple


class Pair(NamedTuple):
    en: str
    de: str


def pairs(rows: str) -> tuple[Pair, ...]:
    """Read "English | German; English | German"."""
    return tuple(Pair(*row.split(" | ")) for row in rows.split("; "))


def sentence(en: str, de: str, mark: str = ".") -> Pair:
    """Capitalised, with a mark at the end."""
    return Pair(_capital(en) + mark, _capital(de) + mark)


def _capital(text: str) -> str:
    return text[0].upper() + text[1:]
