"""The texts of each split, train, valid and test: checking them, and writing them to one pair of plain files."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from itertools import chain
from pathlib import Path

from ...usage_error import UsageError
from ..progress import shown
from ..text_files import read_pairs
from . import sides

SPLITS = ("train", "valid", "test")
Pair = tuple[str, str]
Text = tuple[Path, Path]


def check(texts: Mapping[str, Sequence[Text]], *, hold_out: int, compare_sides: bool = True) -> int:
    """The number of pairs that are left of the training text when some of its end is held out.

    Args:
        texts: files of train, valid and test, in order; a split without files is held out.
        hold_out: pairs for each such split.
        compare_sides: whether a text whose sides look swapped is refused.

    Raises:
        UsageError: a text cannot be read, the training text is too short, a side has no text, or the sides of a text
            look swapped.
    """
    training = sides.profiles(read_pairs(*texts["train"][0]))
    for text in chain.from_iterable(texts.values()):
        for side, path in enumerate(text):
            if not any(pair[side].strip() for pair in read_pairs(*text)):
                raise UsageError(f"{path}: has no text")
        if compare_sides:
            sides.check(training, sides.profiles(read_pairs(*text)), text)
    # All is read to the end, so that a bad line is found before anything is made.
    counts = {split: sum(1 for _ in shown(_pairs(found), f"reading {split}")) for split, found in texts.items()}
    left = counts["train"] - hold_out * sum(not found for found in texts.values())
    if left < 1:
        raise UsageError(f"--hold-out {hold_out}: the training text has only {counts['train']:,} pairs")
    return left


def gather(
    texts: Mapping[str, Sequence[Text]], folder: Path, *, train: int, hold_out: int, languages: Sequence[str]
) -> dict[str, int]:
    """Write ``<split>.<language>`` to ``folder``, for both languages; for the other arguments see :func:`check`.

    Args:
        train: pairs for training, what :func:`check` returned; then come those of the splits without files.

    Returns:
        The numbers of pairs of the splits that have files, but of train.
    """
    folder.mkdir(parents=True, exist_ok=True)
    given = {split: _pairs(found) for split, found in texts.items() if split != "train" and found}
    written = {split: write(pairs, [(split, None)], folder, languages) for split, pairs in given.items()}
    shares = [("train", train), *((split, hold_out) for split, found in texts.items() if not found)]
    total = sum(share for _, share in shares)
    write(shown(_pairs(texts["train"]), "gathering", total), shares, folder, languages)
    return written


def _pairs(texts: Sequence[Text]) -> Iterator[Pair]:
    return chain.from_iterable(read_pairs(*text) for text in texts)


def write(
    pairs: Iterable[Pair], shares: Sequence[tuple[str, int | None]], folder: Path, languages: Sequence[str]
) -> int:
    """Write the pairs, in order, to splits of the given sizes (None: all) in ``folder``; returns their number."""
    iterator = iter(pairs)
    written = 0
    for name, share in shares:
        with ExitStack() as stack:
            files = [
                stack.enter_context((folder / f"{name}.{language}").open("w", encoding="utf-8", newline="\n"))
                for language in languages
            ]
            # The range comes first: otherwise zip would take a pair before it sees the range's end.
            for _, pair in zip(range(share) if share is not None else iter(int, 1), iterator, strict=False):
                for file, line in zip(files, pair, strict=True):
                    file.write(line + "\n")
                written += 1
    return written
