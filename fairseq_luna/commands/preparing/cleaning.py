"""Training pairs that are left out: useless ones, and on request those that are held out too.

A model has seen a held-out sentence that is in its training text, and its score says less.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from ...subwords import is_blank
from ...text_files import read_pairs

EMPTY = "one side empty"
HELD_OUT = ("valid", "test")
PAIRS, SOURCES = "pairs", "sources"
KINDS = (PAIRS, SOURCES)
Pair = tuple[str, str]


class LengthLimits(NamedTuple):
    """Limits of training pairs. Pairs with an empty side are always dropped."""

    longest: int | None = None  # maximum number of pieces in a sentence
    ratio: float | None = None  # maximum ratio of the pieces of the longer side to the pieces of the shorter side

    def violated_by(self, first: str, second: str) -> str | None:
        """The rule that drops the pair, or None; ``first`` and ``second`` are pieces with spaces between them."""
        if is_blank(first) or is_blank(second):
            return EMPTY
        short, long = sorted((len(first.split()), len(second.split())))
        if self.longest is not None and long > self.longest:
            return f"longer than {self.longest} pieces"
        if self.ratio is not None and long > self.ratio * short:
            return f"one side longer than {self.ratio} times the other"
        return None


def clean_pairs(
    pairs: Iterable[tuple[str, str]], rules: LengthLimits, dropped: "Counter[str]"
) -> Iterator[tuple[str, str]]:
    """Yield the pairs that no rule drops; ``dropped`` counts the other pairs by rule."""
    for pair in pairs:
        rule = rules.violated_by(*pair)
        if rule is None:
            yield pair
        else:
            dropped[rule] += 1


class Overlap:
    """The held-out pairs of a folder of plain text, and which of them are in the training text too.

    Args:
        raw: folder with ``{valid,test}.<language>``.
        leave_out: :data:`PAIRS` or :data:`SOURCES`: training pairs to leave out if both sides, or the source, are held
            out. None: no pairs.
    """

    def __init__(self, raw: Path, languages: Sequence[str], leave_out: str | None) -> None:
        self.leave_out = leave_out
        self.splits: dict[str, list[Pair]] = {}
        for split in HELD_OUT:
            pairs = read_pairs(*(raw / f"{split}.{language}" for language in languages))
            self.splits[split] = [stripped(pair) for pair in pairs]
        whole = [pair for pairs in self.splits.values() for pair in pairs if not any(map(is_blank, pair))]
        self.held_out_parts = {kind: {compared_part(pair, kind) for pair in whole} for kind in KINDS}
        self.repeated_parts: dict[str, set[Pair]] = {kind: set() for kind in KINDS}

    def record_or_leave_out(self, pair: Pair) -> bool:
        """Whether to leave out the training pair; if not, the pair is recorded for :meth:`counts`."""
        pair = stripped(pair)
        same = [kind for kind in KINDS if compared_part(pair, kind) in self.held_out_parts[kind]]
        if self.leave_out in same:
            return True
        for kind in same:
            self.repeated_parts[kind].add(compared_part(pair, kind))
        return False

    def counts(self) -> dict[str, dict[str, int]]:
        """For each split, its number of pairs, and how many of its pairs and sources are in the training text."""
        return {
            split: {
                "total": len(pairs),
                **{
                    kind: sum(compared_part(pair, kind) in self.repeated_parts[kind] for pair in pairs)
                    for kind in KINDS
                },
            }
            for split, pairs in self.splits.items()
        }


def stripped(pair: Pair) -> Pair:
    """``pair`` without white space at the ends, which makes no difference."""
    return pair[0].strip(), pair[1].strip()


def compared_part(pair: Pair, kind: str) -> Pair:
    """The part of ``pair`` that is compared: both sides, or for :data:`SOURCES` the source."""
    return pair if kind == PAIRS else (pair[0], "")


def lines_of_overlap(counts: dict[str, dict[str, int]]) -> list[str]:
    """A line of text for each split that overlaps with the training text; ``counts``: of :meth:`Overlap.counts`."""
    return [
        f"{split}: {numbers[PAIRS]:,} of {numbers['total']:,} pairs also stand in the training text, "
        f"and {numbers[SOURCES]:,} of the sources"
        for split, numbers in counts.items()
        if numbers[SOURCES]
    ]
