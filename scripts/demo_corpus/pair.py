"""A piece of text in both languages."""

from typing import NamedTuple


class Pair(NamedTuple):
    en: str
    de: str


def sentence(en: str, de: str, mark: str = ".") -> Pair:
    """Capital letter in front, mark at the end."""
    return Pair(_capital(en) + mark, _capital(de) + mark)


def _capital(text: str) -> str:
    return text[0].upper() + text[1:]
