"""Held-out sentences that stand in the training text too: a model has seen them, and its score says less."""

from collections.abc import Sequence
from pathlib import Path

from ..text_files import read_pairs

HELD_OUT = ("valid", "test")
PAIRS, SOURCES = "pairs", "sources"
KINDS = (PAIRS, SOURCES)
Pair = tuple[str, str]


class Overlap:
    """The held-out pairs of a folder of plain text, and which of them stand in the training text.

    Args:
        raw: has ``{valid,test}.<language>``.
        leave_out: the kind of training pairs that are not used, or None.
    """

    def __init__(self, raw: Path, languages: Sequence[str], leave_out: str | None) -> None:
        self.leave_out = leave_out
        self.splits: dict[str, list[Pair]] = {}
        for split in HELD_OUT:
            pairs = read_pairs(*(raw / f"{split}.{language}" for language in languages))
            self.splits[split] = [stripped(pair) for pair in pairs]
        whole = [pair for pairs in self.splits.values() for pair in pairs if all(pair)]
        self.wanted = {kind: {of_kind(pair, kind) for pair in whole} for kind in KINDS}
        self.found: dict[str, set[Pair]] = {kind: set() for kind in KINDS}

    def leaves_out(self, pair: Pair) -> bool:
        """Whether the training pair is not to be used; otherwise it is noted."""
        pair = stripped(pair)
        same = [kind for kind in KINDS if of_kind(pair, kind) in self.wanted[kind]]
        if self.leave_out in same:
            return True
        for kind in same:
            self.found[kind].add(of_kind(pair, kind))
        return False

    def counts(self) -> dict[str, dict[str, int]]:
        """For each split its pairs, and of how many the pair or the source stands in the training text that is used."""
        return {
            split: {
                "total": len(pairs),
                **{kind: sum(of_kind(pair, kind) in self.found[kind] for pair in pairs) for kind in KINDS},
            }
            for split, pairs in self.splits.items()
        }


def stripped(pair: Pair) -> Pair:
    """White space at the ends tells no pairs apart."""
    return pair[0].strip(), pair[1].strip()


def of_kind(pair: Pair, kind: str) -> Pair:
    """What two pairs that are the same of this kind have in common."""
    return pair if kind == PAIRS else (pair[0], "")


def said(counts: dict[str, dict[str, int]]) -> list[str]:
    """In words, a line for each split of which the training text has something."""
    return [
        f"{split}: {found[PAIRS]:,} of {found['total']:,} pairs also stand in the training text, "
        f"and {found[SOURCES]:,} of the sources"
        for split, found in counts.items()
        if found[SOURCES]
    ]
