"""Texts and pictures with labels, from published files, which are checked before anything is written.

A row is a label, and a text or a line of numbers for each input.
"""

import random
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path

import numpy as np

from fairseq_luna.command_line import CommandError
from fairseq_luna.text_files import read_lines

Row = tuple[str, ...]
Splits = dict[str, Callable[[], Iterable[Row]]]

NUMBERS = [str(number) for number in range(256)]
PAPERS = {"train": "new_aan_pairs.train.tsv", "valid": "new_aan_pairs.eval.tsv", "test": "new_aan_pairs.test.tsv"}
BATCHES = [*(f"data_batch_{number}.bin" for number in range(1, 6)), "test_batch.bin"]
HARD = "curv_contour_length_14"  # of Pathfinder, as in the Long Range Arena
PIXELS = 32 * 32
# A label and the red, green and blue values of a picture.
RECORD = 1 + 3 * PIXELS
# ITU-R BT.601, as in the Long Range Arena.
GREY = np.array([0.299, 0.587, 0.114])


def line(data: Iterable[int]) -> str:
    """Bytes as words."""
    return " ".join([NUMBERS[number] for number in data])


def needed(folder: Path, *names: str) -> Path:
    """The first of these files or folders that there is."""
    for path in (folder / name for name in names):
        if path.exists():
            return path
    raise CommandError(f"--from-dir {folder} lacks {' or '.join(names)}")


def reviews(folder: Path, hold_out: int, first: Sequence[int] = ()) -> dict[str, list[Row]]:
    """Rows of ``{train,valid,test}.tsv``, plain or .gz, LABEL<TAB>TEXT; or of the Large Movie Review Dataset's folders.

    Without a valid, the last ``hold_out`` rows of train become it.

    Args:
        first: numbers of training texts that shall be data of their own.

    Raises:
        CommandError: text that cannot be used, too little of it, texts that are sorted by label, or a label that the
            training text does not have.
    """
    paths = {split: needed(folder, f"{split}.tsv", f"{split}.tsv.gz", f"{split}/pos") for split in ("train", "test")}
    found = {split: _texts(path) for split, path in paths.items()}
    valid = next((path for end in ("", ".gz") if (path := folder / f"valid.tsv{end}").exists()), None)
    if valid is None and hold_out >= len(found["train"]):
        raise CommandError(f"--hold-out {hold_out}: {paths['train']} has {len(found['train']):,} texts")
    found["valid"] = _texts(valid) if valid else found["train"][-hold_out:]
    found["train"] = found["train"] if valid else found["train"][:-hold_out]
    for count in first:
        if count >= len(found["train"]):
            raise CommandError(f"--training {count}: there are {len(found['train']):,} training texts")
    labels = {label for label, _ in found["train"]}
    for part in [found["train"], *(found["train"][:count] for count in first), *([] if valid else [found["valid"]])]:
        if len(part) > 1 and len({label for label, _ in part}) == 1:
            raise CommandError(
                f"{paths['train']}: {len(part):,} texts in a row have the label {part[0][0]}; shuffle them"
            )
    if unknown := {label for rows in found.values() for label, _ in rows} - labels:
        raise CommandError(f"{folder}: the training text does not have the label {min(unknown)}")
    return found


def _texts(path: Path) -> list[Row]:
    """Labels and texts. Texts of folders come in an order that mixes the labels and is always the same."""
    if path.is_file():
        return [_labelled(path, number, row) for number, row in enumerate(read_lines(path), 1)]
    files = review_files(path)
    rows = [(str(int(file.parent.name == "pos")), " ".join(read_lines(file))) for file in files]
    if empty := [file for file, (_, text) in zip(files, rows, strict=True) if not text.strip()]:
        raise CommandError(f"{empty[0]}: has no text")
    return rows


def review_files(positive: Path) -> list[Path]:
    files = [file for folder in ("neg", "pos") for file in sorted((positive.parent / folder).glob("*.txt"))]
    random.Random(1).shuffle(files)
    return files


def _labelled(path: Path, number: int, row: str) -> Row:
    label, tab, text = row.partition("\t")
    if not tab or len(label.split()) != 1 or not text.strip():
        raise CommandError(f"{path}, line {number}: is not LABEL<TAB>TEXT")
    return label.strip(), text


def papers(folder: Path, length: int) -> Splits:
    """The pairs of the ACL Anthology Network as the Long Range Arena published them; texts cut to ``length`` bytes.

    A line has a label (0.0 or 1.0), two names, which are not read, and two texts, with tabs between them.
    """
    splits = {split: partial(_pairs, needed(folder, name), length) for split, name in PAPERS.items()}
    for rows in splits.values():
        deque(rows(), maxlen=0)  # bad text is refused before anything is written
    return splits


def _pairs(path: Path, length: int) -> Iterator[Row]:
    for number, row in enumerate(read_lines(path), 1):
        fields = row.split("\t")  # as in the publication: quotes are part of a text
        label = fields[0].removesuffix(".0")
        if len(fields) != 5 or label not in ("0", "1") or not all(text.strip() for text in fields[3:]):
            raise CommandError(f"{path}, line {number}: must be LABEL, two names and two texts, label 0 or 1")
        yield label, *(line(text.encode()[:length]) for text in fields[3:])


def pictures(folder: Path, hold_out: int) -> Splits:
    """CIFAR-10's binary version, which unlike the Python version needs no unpickling, in grey."""
    *batches, test = (_batch(needed(folder, name)) for name in BATCHES)
    training = np.concatenate(batches)
    if hold_out >= len(training):
        raise CommandError(f"--hold-out {hold_out}: there are {len(training):,} training pictures")

    def rows(records: np.ndarray) -> Iterator[Row]:
        for record in records:
            grey = np.rint(GREY @ record[1:].reshape(3, PIXELS)).astype(np.uint8)
            yield str(record[0]), line(grey.tolist())

    parts = {"train": training[:-hold_out], "valid": training[-hold_out:], "test": test}
    return {split: partial(rows, records) for split, records in parts.items()}


def _batch(path: Path) -> np.ndarray:
    """Records ``(N, 3073)``, uint8."""
    data = np.fromfile(path, dtype=np.uint8)
    if not len(data) or len(data) % RECORD or data[::RECORD].max() > 9:
        raise CommandError(
            f"{path}: is not a batch of CIFAR-10's binary version: a label below 10 and 3,072 values each"
        )
    return data.reshape(-1, RECORD)


def paths(folder: Path) -> Splits:
    """Pathfinder's pictures of the Long Range Arena's release; 80, 10 and 10 % of them, always the same ones.

    A line of a file in metadata/ has a picture's folder and name, a number, and the label.
    """
    listed = []
    for file in sorted(needed(folder, f"{HARD}/metadata").iterdir()):
        for number, row in enumerate(read_lines(file), 1):
            fields = row.split()
            picture = folder / HARD / "/".join(fields[:2])
            if len(fields) < 4 or fields[3] not in ("0", "1") or not picture.is_file():
                raise CommandError(
                    f"{file}, line {number}: must be the folder and name of a picture, a number, a label"
                )
            listed.append((fields[3], picture))
    random.Random(1).shuffle(listed)
    cuts = [len(listed) * share // 10 for share in (0, 8, 9, 10)]

    def rows(part: Sequence[tuple[str, Path]]) -> Iterator[Row]:
        from PIL import Image

        for label, picture in part:
            with Image.open(picture) as opened:
                yield label, line(opened.convert("L").tobytes())

    parts = zip(("train", "valid", "test"), cuts[:-1], cuts[1:], strict=True)
    return {split: partial(rows, listed[start:end]) for split, start, end in parts}
