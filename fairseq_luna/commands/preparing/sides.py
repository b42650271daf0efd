"""Is each side of a text in the language of the training text's same side? By the frequencies of short strings."""

from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import islice
from math import sqrt

from ...usage_error import UsageError

_LINES = 1000
# Similarities of parallel texts of different domains are 0.55 to 1 on one side, and 0.15 to 0.4 across.
_MARGIN = 0.2
Pairs = Iterable[tuple[str, str]]


def profiles(pairs: Pairs) -> list[Counter[str]]:
    """How often each string of three characters is in the first lines of either side."""
    found: list[Counter[str]] = [Counter(), Counter()]
    for pair in islice(pairs, _LINES):
        for counts, line in zip(found, pair, strict=True):
            padded = f" {line.lower()} "
            counts.update(padded[start : start + 3] for start in range(len(padded) - 2))
    return found


def check(training: Sequence[Counter[str]], others: Sequence[Counter[str]], names: Sequence[object]) -> None:
    """Compare the profiles of a text with those of the training text.

    Args:
        names: of the files of ``others``.

    Raises:
        UsageError: a side is more like the other side of the training text.
    """
    for side, name in enumerate(names):
        same, across = (_similarity(others[side], training[place]) for place in (side, 1 - side))
        if across > same + _MARGIN:
            wrong, right = ("source", "target") if side == 0 else ("target", "source")
            raise UsageError(
                f"{name}: is given as the {wrong}, but looks like the training text's {right}; are the files swapped? "
                "If they are not, add --not-swapped"
            )


def _similarity(first: Counter[str], second: Counter[str]) -> float:
    """The cosine of two profiles."""
    lengths = sqrt(sum(count**2 for count in first.values()) * sum(count**2 for count in second.values()))
    return sum(count * second[string] for string, count in first.items()) / lengths if lengths else 0.0
