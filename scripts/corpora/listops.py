"""ListOps: nested lists of digits, whose value is the label (arXiv 1804.06028, lengths of arXiv 2011.04006)."""

import random
from collections.abc import Callable, Iterator
from hashlib import blake2b
from statistics import median

END = "]"
OPERATORS: dict[str, Callable[[list[int]], int]] = {
    "[MIN": min,
    "[MAX": max,
    "[MED": lambda values: int(median(values)),
    "[SM": lambda values: sum(values) % 10,
}
DIGITS = [str(digit) for digit in range(10)]
SYMBOLS = [*DIGITS, *OPERATORS, END]
_NAMES = list(OPERATORS)
# Depth of the deepest digit, of how many arguments an operator has at most, and how often one of them is an operator.
DEPTH = 10
ARGUMENTS = 10
NESTED = 0.25


def rows(seed: int, shortest: int, longest: int) -> Iterator[tuple[str, str]]:
    """Endless labels and lists of so many symbols, each list once; the same for the same seed and lengths."""
    draw, seen = random.Random(f"listops {seed}"), set()
    while True:
        value, symbols = _grow(draw, longest)
        if shortest <= len(symbols) <= longest:
            line = " ".join(symbols)
            digest = blake2b(line.encode(), digest_size=16).digest()
            if digest not in seen:
                seen.add(digest)
                yield str(value), line


def _grow(draw: random.Random, longest: int) -> tuple[int, list[str]]:
    """A list's value and symbols; unfinished if it becomes too long."""
    chance = draw.random
    symbols: list[str] = []
    # For each open operator: its name, its arguments so far, and how many are missing.
    names: list[str] = []
    arguments: list[list[int]] = []
    missing: list[int] = []
    nested = True  # a list is not a mere digit
    while len(symbols) <= longest:
        if nested:
            name = _NAMES[int(chance() * len(_NAMES))]
            symbols.append(name)
            names.append(name)
            arguments.append([])
            missing.append(2 + int(chance() * (ARGUMENTS - 1)))
        else:
            digit = int(chance() * 10)
            symbols.append(DIGITS[digit])
            arguments[-1].append(digit)
            missing[-1] -= 1
        while not missing[-1]:
            missing.pop()
            value = OPERATORS[names.pop()](arguments.pop())
            symbols.append(END)
            if not missing:
                return value, symbols
            arguments[-1].append(value)
            missing[-1] -= 1
        nested = len(missing) < DEPTH - 1 and chance() < NESTED
    return 0, symbols
