"""What a corpus is made of: splits of parts, and where each part is published."""

from dataclasses import dataclass
from typing import NamedTuple

LANGUAGES = ("en", "de")


@dataclass(frozen=True)
class Remote:
    """A published file: the same bytes at each of its addresses.

    Args:
        urls: addresses in the order of trying.
        checksum: ``<algorithm of hashlib>:<hex digest>``.
        size: bytes, where it is known.
    """

    urls: tuple[str, ...]
    checksum: str
    size: int | None = None

    @property
    def name(self) -> str:
        return self.urls[0].rsplit("/", 1)[-1]


class Place(NamedTuple):
    """One side of a parallel text: a published file, or ``member`` of it where it is a tar."""

    remote: Remote
    member: str | None = None


class Source(NamedTuple):
    """One way to get both sides of a part."""

    en: Place
    de: Place


@dataclass(frozen=True)
class Part:
    """A corpus, with every way to get it, the best first."""

    title: str
    sources: tuple[Source, ...]


@dataclass(frozen=True)
class Split:
    """train, valid or test.

    Args:
        stems: what its plain files may be called in a folder of the user's, as in ``train.en``.
        sentences: how many it has, where another number must be refused.
        hint: for a wrong number that is often met, what it is.
    """

    name: str
    stems: tuple[str, ...]
    parts: tuple[Part, ...]
    sentences: int | None = None
    hint: tuple[int, str] | None = None
