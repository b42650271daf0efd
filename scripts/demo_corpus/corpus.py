"""Drawing the corpus: distinct sentences, split so that no sentence is in two parts."""

import hashlib
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random

from . import facts, sentences
from .pair import Pair

SIZES = {"train": 12000, "valid": 500, "test": 500}
SEED = 2021

_PATTERNS: tuple[tuple[Callable[[Random], Pair], int], ...] = (
    (sentences.plain, 22),
    (sentences.time_first, 15),
    (sentences.asked, 10),
    (sentences.main_then_subordinate, 7),
    (sentences.subordinate_then_main, 5),
    (sentences.reported, 8),
    (sentences.with_infinitive, 7),
    (sentences.described_by_clause, 6),
    (sentences.done_to, 5),
    (sentences.state, 4),
    (sentences.compared, 4),
    (sentences.opposed, 2),
    (facts.costs, 4),
    (facts.how_much, 1),
    (facts.pays, 3),
    (facts.timetable, 3),
    (facts.event, 3),
    (facts.clock_now, 1),
    (facts.today, 1),
    (facts.born, 2),
    (facts.age, 2),
    (facts.there_are, 2),
)


def draw(seed: int = SEED) -> Iterator[Pair]:
    """An endless stream of sentence pairs; no English or German sentence is repeated."""
    rng = Random(seed)
    patterns = [pattern for pattern, _ in _PATTERNS]
    weights = [weight for _, weight in _PATTERNS]
    german_of: dict[str, str] = {}
    german_seen: set[str] = set()
    while True:
        pair = rng.choices(patterns, weights=weights)[0](rng)
        known = german_of.get(pair.en)
        if known is None and pair.de not in german_seen:
            german_of[pair.en] = pair.de
            german_seen.add(pair.de)
            yield pair
        elif known is not None and known != pair.de:
            raise ValueError(f"the grammar has two translations of {pair.en!r}: {known!r} and {pair.de!r}")


def splits(sizes: dict[str, int] | None = None, seed: int = SEED) -> dict[str, list[Pair]]:
    source = draw(seed)
    return {name: [next(source) for _ in range(size)] for name, size in (sizes or SIZES).items()}


def write(folder: Path, sizes: dict[str, int] | None = None, seed: int = SEED) -> None:
    """Write ``train.en``, ``train.de`` and so on, one sentence per line, with the same bytes on every machine."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in texts(sizes, seed).items():
        (folder / name).write_bytes(text)


def digest() -> str:
    """A hash of what :func:`write` writes by default."""
    return hashlib.sha256(repr(sorted(texts().items())).encode()).hexdigest()


def texts(sizes: dict[str, int] | None = None, seed: int = SEED) -> dict[str, bytes]:
    """The contents of the files."""
    return {
        f"{name}.{language}": "".join(getattr(pair, language) + "\n" for pair in pairs).encode()
        for name, pairs in splits(sizes, seed).items()
        for language in Pair._fields
    }
