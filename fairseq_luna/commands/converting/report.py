"""The table of where the new model's parameters come from."""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from .parameters import Part


def lines_of_table(parts: Sequence[Part], left: Iterable[Part]) -> Iterator[str]:
    """A line for each kind of parameter and origin, the layers of a side together; the sum; and what is left out."""
    kinds: Counter[tuple[str, str]] = Counter()
    for part in parts:
        kinds[_kind(part.name), part.origin] += part.numbers
    width = max(len(kind) for kind, _ in kinds)
    for (kind, origin), numbers in kinds.items():
        yield f"{kind:{width}}  {numbers:12,}  {origin}"
    taken, all_numbers = sum(part.numbers for part in parts if part.taken), sum(part.numbers for part in parts)
    yield f"{taken:,} of {all_numbers:,} numbers are taken over ({taken / all_numbers:.1%})"
    left_out: Counter[str] = Counter()
    for part in left:
        left_out[_kind(part.name)] += part.numbers
    for kind, numbers in left_out.items():
        yield f"left out: {kind}  {numbers:,}"


def _kind(name: str) -> str:
    """``name`` without its layer and without what it is of a linear map or a norm."""
    return re.sub(r"\.\d+\.", ".*.", re.sub(r"\.(weight|bias)$", "", name))
