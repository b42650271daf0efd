"""Dropping useless training pairs: an empty side, too many pieces, or too different lengths."""

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from ...subwords import is_blank

EMPTY = "one side empty"


class Rules(NamedTuple):
    """Which pairs are dropped, besides those with an empty side."""

    longest: int | None = None  # most pieces of a sentence
    ratio: float | None = None  # most of the longer side's pieces for each of the shorter side's

    def against(self, first: str, second: str) -> str | None:
        """The rule that drops the pair, or None; ``first`` and ``second`` are pieces between spaces."""
        if is_blank(first) or is_blank(second):
            return EMPTY
        short, long = sorted((len(first.split()), len(second.split())))
        if self.longest is not None and long > self.longest:
            return f"longer than {self.longest} pieces"
        if self.ratio is not None and long > self.ratio * short:
            return f"one side longer than {self.ratio} times the other"
        return None


def kept(pairs: Iterable[tuple[str, str]], rules: Rules, dropped: "Counter[str]") -> Iterator[tuple[str, str]]:
    """The pairs that no rule drops; ``dropped`` counts the others by rule."""
    for pair in pairs:
        rule = rules.against(*pair)
        if rule is None:
            yield pair
        else:
            dropped[rule] += 1
