"""Texts with a label each, to data for fairseq's task sentence_prediction.

They are read from files of ``LABEL<TAB>TEXT``, or from the folders of the Large Movie Review Dataset.
"""

import random
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from fairseq.data import Dictionary, data_utils, indexed_dataset

from fairseq_luna.commands.command_line import CommandError
from fairseq_luna.commands.preparing import settings
from fairseq_luna.commands.preparing.pipeline import SPLITS
from fairseq_luna.commands.progress import shown
from fairseq_luna.commands.steps import run_fairseq
from fairseq_luna.commands.text_files import read_lines

TEXT, LABEL = "text", "label"
HOLD_OUT = 2500
# Labels by folder.
_FOLDERS = {"0": "neg", "1": "pos"}


class Column(NamedTuple):
    """A column of the examples: ``folder/{train,valid,test}.name``, words between spaces, and their dictionary."""

    folder: Path
    name: str
    dictionary: Path


def find(folder: Path, split: str) -> Path | None:
    """``split.tsv`` or ``split.tsv.gz`` in ``folder``, or None."""
    return next((path for end in ("tsv", "tsv.gz") if (path := folder / f"{split}.{end}").is_file()), None)


def find_all(folder: Path, hold_out: int | None) -> dict[str, Path]:
    """The files of ``folder`` by split, or the folders of a split; valid may be missing.

    Args:
        hold_out: the value of the flag, which is for folders without a valid.

    Raises:
        CommandError: a file is missing, or the flag is given although there is a valid.
    """
    if not folder.is_dir():
        raise CommandError(f"--from-dir {folder}: no such folder")
    files = {split: path for split in SPLITS if (path := find(folder, split) or _find_folders(folder, split))}
    for split in ("train", "test"):
        if split not in files:
            raise CommandError(
                f"--from-dir {folder} lacks {split}.tsv or {split}.tsv.gz, or {split}/pos and {split}/neg"
            )
    if hold_out and "valid" in files:
        raise CommandError(f"--hold-out {hold_out}: {folder} has its own valid; leave the flag out")
    return files


def _find_folders(folder: Path, split: str) -> Path | None:
    return folder / split if all((folder / split / name).is_dir() for name in _FOLDERS.values()) else None


def fingerprint(path: Path) -> dict[str, Any]:
    """:func:`~corpora.settings.fingerprint` of a file, or of the texts of a split's folders."""
    return settings.fingerprint(path, None if path.is_file() else [text for _, text in _texts(path)])


def read(path: Path) -> Iterator[tuple[str, str]]:
    """Labels and texts.

    Raises:
        CommandError: a line without a tab, with nothing before or after it, or with a space in the label; a text that
            is empty.
    """
    return _read_file(path) if path.is_file() else _read_folders(path)


def _read_folders(path: Path) -> Iterator[tuple[str, str]]:
    for label, text in _texts(path):
        line = " ".join(read_lines(text))
        if not line.strip():
            raise CommandError(f"{text}: has no text")
        yield label, line


def _texts(path: Path) -> list[tuple[str, Path]]:
    """Labels and files, in an order that mixes the labels and is always the same."""
    texts = [(label, text) for label, name in _FOLDERS.items() for text in sorted((path / name).glob("*.txt"))]
    random.Random(1).shuffle(texts)
    return texts


def _read_file(path: Path) -> Iterator[tuple[str, str]]:
    for number, line in enumerate(read_lines(path), 1):
        label, tab, text = line.partition("\t")
        if not tab or len(label.split()) != 1 or not text.strip():
            raise CommandError(f"{path}, line {number}: is not LABEL<TAB>TEXT")
        yield label.strip(), text


def check(files: dict[str, Path], hold_out: int, first: Sequence[int] = ()) -> tuple[int, list[str]]:
    """Read all files; return the number of training texts and their labels, sorted.

    Args:
        files: by split; without valid, ``hold_out`` texts are taken from the training text.
        first: the numbers of ``--training``: so many texts are data of their own.

    Raises:
        CommandError: text that cannot be used, too little of it, texts that are sorted by label, or a label that the
            training text does not have.
    """
    found = {split: [label for label, _ in read(path)] for split, path in files.items()}
    if "valid" not in files:
        if hold_out >= len(found["train"]):
            raise CommandError(f"--hold-out {hold_out}: {files['train']} has {len(found['train']):,} texts")
        found["train"], found["valid"] = found["train"][:-hold_out], found["train"][-hold_out:]
    labels = sorted(set(found["train"]))
    if len(labels) < 2:
        raise CommandError(
            f"{files['train']}: all labels are {', '.join(labels) or 'missing'}; give two or more, in random order"
        )
    parts = [] if "valid" in files else [(f"--hold-out {hold_out}: the last", found["valid"])]
    for count in first:
        if count >= len(found["train"]):
            raise CommandError(f"--training {count}: there are {len(found['train']):,} training texts")
        parts.append((f"--training {count}: the first", found["train"][:count]))
    for what, given in parts:
        if len(given) > 1 and len(set(given)) == 1:
            raise CommandError(f"{what} texts of {files['train']} all have the label {given[0]}; shuffle its lines")
    for split, given in found.items():
        if unknown := sorted(set(given) - set(labels)):
            raise CommandError(f"{split}: the training text does not have its label {unknown[0]}, only {labels}")
    return len(found["train"]), labels


def gather(files: dict[str, Path], hold_out: int, target: Path) -> None:
    """Write ``{train,valid,test}.{text,label}``, plain, to ``target``."""
    target.mkdir()
    for split, path in files.items():
        lines = list(shown(read(path), f"reading {path.name}"))
        if split == "train" and "valid" not in files:
            _write(target, "valid", lines[-hold_out:])
            lines = lines[:-hold_out]
        _write(target, split, lines)


def _write(folder: Path, split: str, lines: list[tuple[str, str]]) -> None:
    for name, column in ((LABEL, 0), (TEXT, 1)):
        with (folder / f"{split}.{name}").open("w", encoding="utf-8", newline="\n") as file:
            file.writelines(f"{line[column]}\n" for line in lines)


def write_symbols(symbols: Iterable[str], target: Path) -> None:
    """Write a dictionary of ``symbols``, in their order."""
    target.write_text("".join(f"{symbol} 1\n" for symbol in symbols), encoding="utf-8")


def binarise(
    columns: Mapping[str, Column], workers: int, log: Path, target: Path, splits: Sequence[str] = SPLITS
) -> None:
    """fairseq-preprocess of texts and of labels.

    Args:
        columns: by their folder in the data-bin: ``label``, ``input0`` and for pairs ``input1``.
    """
    for place, (folder, name, dictionary) in columns.items():
        arguments = ["--only-source", "--srcdict", str(dictionary), "--workers", str(workers)]
        arguments += ["--destdir", str(target / place)]
        for split in splits:
            arguments += [f"--{split}pref", str(folder / f"{split}.{name}")]
        run_fairseq("preprocess", arguments, log)


def sort_by_length(data: Path, count: int | None, target: Path) -> None:
    """Write the data-bin ``data`` with the shortest texts first.

    Args:
        count: only so many training texts, the first of ``data``; None = all.
    """
    dictionaries = {path.parent.name: Dictionary.load(str(path)) for path in sorted(data.glob("*/dict.txt"))}
    for place in dictionaries:
        (target / place).mkdir(parents=True)
        shutil.copyfile(data / place / "dict.txt", target / place / "dict.txt")
    for split in SPLITS:
        columns = {
            place: data_utils.load_indexed_dataset(str(data / place / split), dictionary)
            for place, dictionary in dictionaries.items()
        }
        sizes = np.sum([column.sizes for column in columns.values()], axis=0)
        order = np.argsort(sizes[: count if split == "train" else None], kind="stable")
        for place, column in columns.items():
            written = target / place / split
            builder = indexed_dataset.make_builder(f"{written}.bin", "mmap", vocab_size=len(dictionaries[place]))
            for index in order:
                builder.add_item(column[index])
            builder.finalize(f"{written}.idx")
