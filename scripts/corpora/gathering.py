"""Writing the texts of each split, train, valid and test, to one pair of plain files."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from itertools import chain
from pathlib import Path

from corpora import sides
from corpora.catalogue import LANGUAGES, Split
from corpora.parallel import shown
from corpora.sgml import read_segments
from fairseq_luna.commands.command_line import CommandError
from fairseq_luna.commands.text_files import in_step, read_lines

Pair = tuple[str, str]


def gather(
    splits: Iterable[Split],
    texts: dict[str, list[tuple[Path, Path]]],
    folder: Path,
    *,
    hold_out: int,
    languages: Sequence[str] = LANGUAGES,
) -> None:
    """Write ``<split>.<language>`` to ``folder``, for both languages.

    Args:
        texts: files of each split, in order; a split without files is held out.
        hold_out: pairs for each such split, taken from the end of the training text.

    Raises:
        CommandError: a split has a wrong number of sentences, the training text is too short, or the sides of a text
            look swapped.
    """
    _check_sides(texts)
    folder.mkdir(parents=True, exist_ok=True)
    for split in splits:
        if split.name != "train" and texts[split.name]:
            _check(split, _write(_pairs(texts[split.name]), [(split.name, None)], folder, languages))
    held_out = [split.name for split in splits if not texts[split.name]]
    # The text is read twice, first to count it, instead of keeping its end in memory.
    total = sum(1 for _ in shown(_pairs(texts["train"]), "counting pairs"))
    train = total - hold_out * len(held_out)
    if train < 1:
        raise CommandError(f"--hold-out {hold_out}: the training text has only {total:,} pairs")
    shares = [("train", train), *((name, hold_out) for name in held_out)]
    _write(shown(_pairs(texts["train"]), "gathering", total), shares, folder, languages)


def _check_sides(texts: dict[str, list[tuple[Path, Path]]]) -> None:
    """Refuse a side without text, and sides that look swapped."""
    training = sides.profiles(_pairs_of(*texts["train"][0]))
    for text in chain.from_iterable(texts.values()):
        for side, path in enumerate(text):
            if not any(pair[side].strip() for pair in _pairs_of(*text)):
                raise CommandError(f"{path}: has no text")
        sides.check(training, sides.profiles(_pairs_of(*text)), text)


def _pairs(texts: list[tuple[Path, Path]]) -> Iterator[Pair]:
    return chain.from_iterable(_pairs_of(*text) for text in texts)


def _pairs_of(english: Path, german: Path) -> Iterator[Pair]:
    if ".sgm" not in english.suffixes:
        return in_step(read_lines(english), read_lines(german), english, german)
    ours, theirs = read_segments(english), read_segments(german)
    pairs = list(in_step((segment.text for segment in ours), (segment.text for segment in theirs), english, german))
    if [segment.number for segment in ours] != [segment.number for segment in theirs]:
        raise CommandError(f"{english} and {german} number their segments differently: they are not a parallel text")
    return iter(pairs)


def _write(pairs: Iterable[Pair], shares: list[tuple[str, int | None]], folder: Path, languages: Sequence[str]) -> int:
    """Write the pairs, in order, to splits of the given sizes (None: all); returns the number of pairs."""
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


def _check(split: Split, sentences: int) -> None:
    if split.sentences in (None, sentences):
        return
    wrong, explanation = split.hint or (None, "")
    reason = f"; {explanation}" if sentences == wrong else ""
    raise CommandError(f"{split.name}: {sentences:,} sentences where {split.sentences:,} are expected{reason}")
