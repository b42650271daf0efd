"""Examples from files: reviews, pairs of papers, pictures. They are checked as they are read.

A row is a label and a line of numbers for each input: bytes of UTF-8 or grey values.
"""

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path

import numpy as np

from corpora import labelled
from fairseq_luna.commands.command_line import CommandError
from fairseq_luna.commands.preparing.pipeline import SPLITS
from fairseq_luna.commands.text_files import read_lines

Row = tuple[str, ...]
Rows = Callable[[], Iterator[Row]]

LABELS = ["0", "1"]
CLASSES = [str(number) for number in range(10)]
NUMBERS = [str(number) for number in range(256)]
PAPERS = {"train": "new_aan_pairs.train.tsv", "valid": "new_aan_pairs.eval.tsv", "test": "new_aan_pairs.test.tsv"}
TRAINING_BATCHES = [f"data_batch_{number}.bin" for number in range(1, 6)]
TEST_BATCH = "test_batch.bin"
PIXELS = 32 * 32
# A label and the red, green and blue values of a picture.
RECORD = 1 + 3 * PIXELS
# ITU-R BT.601, as in the published preparation.
GREY = np.array([0.299, 0.587, 0.114])


def line(data: Iterable[int]) -> str:
    """Bytes as words."""
    return " ".join([NUMBERS[number] for number in data])


def reviews(folder: Path, hold_out: int | None, length: int) -> dict[str, Rows]:
    """Labelled texts, as scripts/prepare_imdb.py reads them; each cut to ``length`` bytes."""
    files = labelled.find_all(folder, hold_out)
    count, labels = labelled.check(files, hold_out or labelled.HOLD_OUT)
    if labels != LABELS:
        raise CommandError(f"{files['train']}: the labels are {', '.join(labels)}; they must be 0 and 1")

    def rows(split: str) -> Iterator[Row]:
        path = files.get(split, files["train"])
        for number, (label, text) in enumerate(labelled.read(path)):
            if path != files["train"] or (number < count) == (split == "train"):
                yield label, line(text.encode()[:length])

    return {split: partial(rows, split) for split in SPLITS}


def papers(folder: Path, length: int) -> dict[str, Rows]:
    """The pairs of the ACL Anthology Network as the Long Range Arena published them; texts cut to ``length`` bytes.

    A line has a label (0.0 or 1.0), two names, which are not read, and two texts, with tabs between them.
    """
    files = {}
    for split, name in PAPERS.items():
        files[split] = _needed(folder, name)
        for _ in _pairs(files[split]):  # bad text is refused before anything is written
            pass

    def rows(path: Path) -> Iterator[Row]:
        for label, *texts in _pairs(path):
            yield label, *(line(text.encode()[:length]) for text in texts)

    return {split: partial(rows, path) for split, path in files.items()}


def _pairs(path: Path) -> Iterator[Row]:
    for number, row in enumerate(read_lines(path), 1):
        fields = row.split("\t")  # as in the publication: quotes are part of a text
        label = {"0.0": "0", "1.0": "1"}.get(fields[0], fields[0])
        if len(fields) != 5 or label not in LABELS or not all(text.strip() for text in fields[3:]):
            raise CommandError(f"{path}, line {number}: must be LABEL, two names and two texts, label 0 or 1")
        yield label, *fields[3:]


def pictures(folder: Path, hold_out: int) -> dict[str, Rows]:
    """CIFAR-10's binary version, which unlike the Python version needs no unpickling, in grey."""
    batches = [_batch(_needed(folder, name)) for name in TRAINING_BATCHES]
    test = _batch(_needed(folder, TEST_BATCH))
    training = np.concatenate(batches)
    if hold_out >= len(training):
        raise CommandError(f"--hold-out {hold_out}: there are {len(training):,} training pictures")

    def rows(records: np.ndarray) -> Iterator[Row]:
        for record in records:
            colours = record[1:].reshape(3, PIXELS)
            yield str(record[0]), line(np.rint(GREY @ colours).astype(np.uint8).tolist())

    parts = {"train": training[:-hold_out], "valid": training[-hold_out:], "test": test}
    return {split: partial(rows, records) for split, records in parts.items()}


def _batch(path: Path) -> np.ndarray:
    """Records ``(N, 3073)``, uint8."""
    data = np.fromfile(path, dtype=np.uint8)
    if not len(data) or len(data) % RECORD or data[::RECORD].max() >= len(CLASSES):
        raise CommandError(
            f"{path}: is not a batch of CIFAR-10's binary version: a label below 10 and 3,072 values each"
        )
    return data.reshape(-1, RECORD)


def _needed(folder: Path, name: str) -> Path:
    if not (folder / name).is_file():
        raise CommandError(f"--from-dir {folder} lacks {name}")
    return folder / name
