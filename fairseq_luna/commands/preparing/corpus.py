"""Parallel texts of each split: checking them, and writing them to one pair of plain files per split."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from itertools import chain, islice
from math import sqrt
from pathlib import Path

from ...progress import progress_bar
from ...subwords import is_blank
from ...text_files import read_pairs
from ...usage_error import UsageError

SPLITS = ("train", "valid", "test")
Pair = tuple[str, str]
Text = tuple[Path, Path]
_PROFILE_LINES = 1000
# Similarities of parallel texts of different domains are 0.55 to 1 on one side, and 0.15 to 0.4 across.
_MARGIN = 0.2


def check_texts(
    texts: Mapping[str, Sequence[Text]], *, hold_out: int, compare_sides: bool = True, advice: str = ""
) -> int:
    """Check the texts of all splits; returns the number of training pairs that remain after holding out.

    Args:
        texts: files of train, valid and test, in order; a split without files is taken from the end of train.
        hold_out: number of pairs for each split without files.
        compare_sides: whether a text whose sides look swapped is refused.
        advice: end of the message about such a text.

    Raises:
        UsageError: a text cannot be read, the training text is too short, a side has no text, or the sides of a text
            look swapped.
    """
    training = trigram_profiles(read_pairs(*texts["train"][0]))
    for text in chain.from_iterable(texts.values()):
        for side, path in enumerate(text):
            if all(is_blank(pair[side]) for pair in read_pairs(*text)):
                raise UsageError(f"{path}: has no text")
        if compare_sides:
            check_sides(training, trigram_profiles(read_pairs(*text)), text, advice)
    # Every text is read to its end, so that a bad line is found before anything is written.
    counts = {
        split: sum(1 for _ in progress_bar(_sentence_pairs(files), f"reading {split}"))
        for split, files in texts.items()
    }
    remaining = counts["train"] - hold_out * sum(not files for files in texts.values())
    if remaining < 1:
        raise UsageError(
            f"--hold-out {hold_out}: the training text has only {counts['train']:,} pairs; "
            "give a smaller number, or --valid and --test"
        )
    return remaining


def gather(
    texts: Mapping[str, Sequence[Text]], folder: Path, *, train: int, hold_out: int, languages: Sequence[str]
) -> dict[str, int]:
    """Write ``<split>.<language>`` to ``folder``, for both languages.

    Args:
        texts, hold_out: see :func:`check_texts`.
        train: number of training pairs, which :func:`check_texts` returned. The pairs after them are held out.

    Returns:
        Number of pairs of valid and test, as far as they have files.
    """
    folder.mkdir(parents=True, exist_ok=True)
    own_texts = {split: _sentence_pairs(files) for split, files in texts.items() if split != "train" and files}
    written = {split: write_splits(pairs, [(split, None)], folder, languages) for split, pairs in own_texts.items()}
    shares = [("train", train), *((split, hold_out) for split, files in texts.items() if not files)]
    total = sum(share for _, share in shares)
    write_splits(progress_bar(_sentence_pairs(texts["train"]), "gathering", total), shares, folder, languages)
    return written


def _sentence_pairs(texts: Sequence[Text]) -> Iterator[Pair]:
    return chain.from_iterable(read_pairs(*text) for text in texts)


def write_splits(
    pairs: Iterable[Pair], shares: Sequence[tuple[str, int | None]], folder: Path, languages: Sequence[str]
) -> int:
    """Write ``pairs``, in order, to the splits of ``shares`` in ``folder``; returns the number of pairs written.

    Args:
        shares: name of each split and its number of pairs, None for all that are left.
    """
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


def trigram_profiles(pairs: Iterable[Pair]) -> list[Counter[str]]:
    """Count the strings of three characters in the first lines of each side."""
    profiles: list[Counter[str]] = [Counter(), Counter()]
    for pair in islice(pairs, _PROFILE_LINES):
        for counts, line in zip(profiles, pair, strict=True):
            padded = f" {line.lower()} "
            counts.update(padded[start : start + 3] for start in range(len(padded) - 2))
    return profiles


def check_sides(
    training: Sequence[Counter[str]], others: Sequence[Counter[str]], names: Sequence[object], advice: str = ""
) -> None:
    """Compare the profiles of a text with the profiles of the training text.

    Args:
        training, others: results of :func:`trigram_profiles`.
        names: files of ``others``.
        advice: end of the message.

    Raises:
        UsageError: a side is more similar to the other side of the training text.
    """
    for side, name in enumerate(names):
        same, across = (_similarity(others[side], training[place]) for place in (side, 1 - side))
        if across > same + _MARGIN:
            wrong, right = ("source", "target") if side == 0 else ("target", "source")
            raise UsageError(
                f"{name}: is given as the {wrong}, but looks like the training text's {right}; are the files swapped?"
                f"{advice}"
            )


def _similarity(first: Counter[str], second: Counter[str]) -> float:
    """Cosine similarity of two profiles."""
    lengths = sqrt(sum(count**2 for count in first.values()) * sum(count**2 for count in second.values()))
    return sum(count * second[string] for string, count in first.items()) / lengths if lengths else 0.0
