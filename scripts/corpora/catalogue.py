"""The splits of a corpus, the parts of a split, and where each part is published."""

from dataclasses import dataclass
from typing import NamedTuple

LANGUAGES = ("en", "de")


@dataclass(frozen=True)
class Remote:
    """A published file: the same bytes at each of its addresses.

    Args:
        urls: tried in this order.
        checksum: ``<algorithm of hashlib>:<hex digest>``.
        size: in bytes, if known.
    """

    urls: tuple[str, ...]
    checksum: str
    size: int | None = None

    @property
    def name(self) -> str:
        return self.urls[0].rsplit("/", 1)[-1]


class Place(NamedTuple):
    """One side of a parallel text: a published file, or ``member`` of a published tar."""

    remote: Remote
    member: str | None = None


class Source(NamedTuple):
    """One way to get both sides of a part."""

    en: Place
    de: Place


@dataclass(frozen=True)
class Part:
    """A corpus and its sources, the best first."""

    title: str
    sources: tuple[Source, ...]


@dataclass(frozen=True)
class Split:
    """train, valid or test.

    Args:
        stems: names of its plain files in the user's folder, as in ``train.en``.
        sentences: their number, if any other number is refused.
        hint: a frequent wrong number, and its explanation.
    """

    name: str
    stems: tuple[str, ...]
    parts: tuple[Part, ...]
    sentences: int | None = None
    hint: tuple[int, str] | None = None
