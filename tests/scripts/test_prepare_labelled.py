"""Labelled texts and the Long Range Arena's data: files in the published formats, ListOps' values, bad input."""

import gzip
import hashlib
import itertools
from contextlib import nullcontext
from pathlib import Path
from unittest.mock import patch

import numpy as np
import pytest
from fairseq.data import data_utils
from PIL import Image

import prepare_labelled
from corpora import labelled, listops
from corpora.labelled import RECORD
from reader_data import read_texts, read_words, reviews, write_lines

pytestmark = pytest.mark.usefixtures("fairseq_in_forks")

SPLITS = ("train", "valid", "test")
TRAIN, TEST = reviews(60, 1), reviews(12, 2)
SHORT = ("--shortest", "10", "--length", "40", "--examples", "60", "10", "20")


def prepare(task: str, out: Path, *flags: object, binarized: bool = False) -> int:
    # fairseq-preprocess takes seconds to start: only two tests run it.
    steps = dict.fromkeys(("binarize", "sort_by_length"), lambda *given: given[-1].mkdir())
    with nullcontext() if binarized else patch.multiple(prepare_labelled, **steps):
        return prepare_labelled.main([task, "--out", str(out), "--workers", "1", *map(str, flags)])


def write(path: Path, texts: list[tuple[str, str]]) -> None:
    write_lines(path, (f"{label}\t{text}" for label, text in texts))


@pytest.fixture
def folder(tmp_path):
    source = tmp_path / "reviews"
    source.mkdir()
    write(source / "train.tsv.gz", TRAIN)
    write(source / "test.tsv", TEST)
    return source


def rows_of(out: Path, split: str, columns: tuple[str, ...] = ("label", "input0")) -> list[tuple[str, ...]]:
    texts = [(out / "work" / "examples" / f"{split}.{name}").read_text().splitlines() for name in columns]
    return list(zip(*texts, strict=True))


def refusal(capsys: pytest.CaptureFixture[str], task: str, out: Path, *flags: object) -> str:
    """The one line of the refusal."""
    assert prepare(task, out, *flags) == 2
    (line,) = capsys.readouterr().err.splitlines()
    return line


def text_of(line: str) -> str:
    return bytes(map(int, line.split())).decode()


def test_every_review_with_its_label(folder, tmp_path, capsys):
    out = tmp_path / "out"
    flags = ("--from-dir", folder, "--hold-out", "10")
    assert prepare("reviews", out, *flags, "--size", 9) == 2
    assert "cannot learn --vocabulary-size 9" in capsys.readouterr().err
    assert prepare("reviews", out, *flags, "--training", "7", "--size", 40, binarized=True) == 0
    assert "--config-name imdb " in capsys.readouterr().out.splitlines()[-1]
    for name, first in (("bin", 50), ("bin_7", 7)):
        for split, given in (("train", TRAIN[:first]), ("valid", TRAIN[50:]), ("test", TEST)):
            places = [out / name / part for part in ("label", "input0")]
            columns = [read_texts(place / split, place / "dict.txt") for place in places]
            assert sorted(zip(*columns, strict=True)) == sorted(given)
            texts = data_utils.load_indexed_dataset(str(out / name / "input0" / split))
            assert list(texts.sizes) == sorted(texts.sizes)
        for part in ("input0", "label"):
            assert (out / name / part / "dict.txt").read_bytes() == (out / "bin" / part / "dict.txt").read_bytes()
    assert (out / "bin" / "label" / "dict.txt").read_text().startswith("0 1\n1 1\n")
    (folder / "train.tsv.gz").unlink()
    write(folder / "train.tsv", [TRAIN[0], (TRAIN[1][0], TRAIN[1][1].upper()), *TRAIN[2:]])
    assert "was made with files " in refusal(capsys, "reviews", out, *flags, "--size", 40)
    write(folder / "valid.tsv", TEST[:5])
    assert labelled.reviews(folder, 10)["valid"] == TEST[:5]


def test_the_published_folders_are_read_in_an_order_that_mixes_the_labels(tmp_path, capsys):
    published, test = tmp_path / "aclImdb", [*TEST, ("1", "Café\u2028!")]
    for split, texts in (("train", TRAIN), ("test", test)):
        for name in ("pos", "neg", "unsup"):
            (published / split / name).mkdir(parents=True)
        for number, (label, text) in enumerate(texts):
            (published / split / ("neg", "pos")[int(label)] / f"{number}_8.txt").write_text(text, encoding="utf-8")
        (published / split / "unsup" / "0_0.txt").write_text("good or bad")
    found = labelled.reviews(published, 10, [6])
    labels = [label for label, _ in found["train"]]
    assert sum(label != other for label, other in itertools.pairwise(labels)) > 15
    assert sorted(found["train"] + found["valid"]) == sorted(TRAIN)
    flags = ("--from-dir", published, "--hold-out", 10, "--length", 20)
    assert [prepare("text", tmp_path / "out", *flags) for _ in range(2)] == [0, 0]
    rows = [(label, text_of(line)) for label, line in rows_of(tmp_path / "out", "test")]
    assert sorted(rows) == sorted((label, text[:20]) for label, text in test)
    (published / "test" / "pos" / "0_9.txt").write_text("Another.")
    assert "was made with files " in refusal(capsys, "text", tmp_path / "out", *flags)
    (published / "test" / "pos" / "0_9.txt").write_text(" \n")
    assert refusal(capsys, "text", tmp_path / "new", *flags).endswith("0_9.txt: has no text")


BAD, GOOD = "0\tbad\n", "1\tfine\n"


@pytest.mark.parametrize(
    ("name", "text", "flags", "said"),
    [
        ("train.tsv.gz", None, (), "lacks train.tsv or train.tsv.gz or train/pos"),
        ("test.tsv", "1\tgood\nno tab\n", (), "test.tsv, line 2: is not LABEL<TAB>TEXT"),
        ("test.tsv", "1\tgo\0od\n", (), "test.tsv, line 1: has a NUL byte at byte 5"),
        ("test.tsv", "1\t \n", (), "test.tsv, line 1: is not LABEL<TAB>TEXT"),
        ("test.tsv", "2\tfine\n", (), "the training text does not have the label 2"),
        ("test.tsv", GOOD, ("--hold-out", "60"), "--hold-out 60: "),
        ("test.tsv", GOOD, ("--training", "50"), "--training 50: there are 50 training texts"),
        ("train.tsv.gz", GOOD * 12, (), "2 texts in a row have the label 1; shuffle them"),
        ("train.tsv.gz", BAD * 5 + GOOD * 12, (), "10 texts in a row have the label 1; shuffle them"),
        ("train.tsv.gz", BAD * 2 + (GOOD + BAD) * 7, ("--training", "2"), "2 texts in a row have the label 0"),
    ],
)
def test_unusable_reviews_are_refused_and_nothing_is_written(folder, tmp_path, capsys, name, text, flags, said):
    path = folder / name
    if text is None:
        path.unlink()
    else:
        path.write_bytes(gzip.compress(text.encode()) if path.suffix == ".gz" else text.encode())
    hold_out = () if "--hold-out" in flags else ("--hold-out", "10")
    assert said in refusal(capsys, "reviews", tmp_path / "out", "--from-dir", folder, *hold_out, *flags)
    assert not (tmp_path / "out").exists()


FUNCTIONS = {
    "MIN": min,
    "MAX": max,
    "MED": lambda values: int(np.median(values)),
    "SM": lambda values: sum(values) % 10,
}


def value_of(line: str) -> int:
    """Python's result for a list, written as nested calls with a list of arguments."""
    calls = "".join({"[": f"{word[1:]}([", "]": "]),"}.get(word[0], f"{word},") for word in line.split())
    (value,) = eval(f"({calls})", dict(FUNCTIONS))
    return value


def test_lists_are_the_same_everywhere_and_have_their_values():
    made = list(itertools.islice(listops.rows(3, 500, 2000), 100))
    assert all(int(label) == value_of(line) for label, line in made)
    # Of the published grammar: depth, arguments and operators were counted when this was recorded.
    digest = hashlib.sha256("".join(f"{label}\t{line}\n" for label, line in made).encode())
    assert digest.hexdigest() == "ddcd722c74296eecfb10b394f2d0adb633c8e34cf57db76dfe68e413ec1663be"


def test_listops_data_has_no_list_twice_and_depends_on_the_seed_alone(tmp_path, capsys):
    for name, seed in (("one", 7), ("again", 7), ("other", 8)):
        assert prepare("listops", tmp_path / name, *SHORT, "--seed", seed) == 0
    assert "--config-name lra lra=listops " in capsys.readouterr().out
    one, again, other = (
        {split: rows_of(tmp_path / name, split) for split in SPLITS} for name in ("one", "again", "other")
    )
    assert one == again != other
    lists = [line for split in SPLITS for _, line in one[split]]
    assert [len(one[split]) for split in SPLITS] == [60, 10, 20]
    assert len(set(lists)) == len(lists) == 90
    assert all(10 <= len(line.split()) <= 40 and value_of(line) == int(label) for label, line in one["train"])
    line = refusal(capsys, "listops", tmp_path / "one", *SHORT, "--seed", 8)
    assert "was made with seed 7, not 8: use another --out" in line


def papers(folder: Path, line: str = "") -> Path:
    folder.mkdir()
    for name in ("train", "eval", "test"):
        text = f'1.0\ta\tb\tfirst {name}\tsecond\n0.0\tc\td\t"third\tfourth\n'
        (folder / f"new_aan_pairs.{name}.tsv").write_text(text + line, encoding="utf-8")
    return folder


def test_retrieval_has_both_texts_sorted_by_length(tmp_path):
    flags = ("--from-dir", papers(tmp_path / "aan"), "--length", 10)
    assert prepare("retrieval", tmp_path / "out", *flags, binarized=True) == 0
    folders = [tmp_path / "out" / "bin" / name for name in ("label", "input0", "input1")]
    columns = [read_words(folder / "valid", folder / "dict.txt") for folder in folders]
    found = [(label, *map(text_of, texts)) for label, *texts in zip(*columns, strict=True)]
    assert found == [("0", '"third', "fourth"), ("1", "first eval", "second")]


def cifar(folder: Path) -> np.ndarray:
    folder.mkdir()
    records = np.random.default_rng(0).integers(256, size=(6, 2, RECORD)).astype(np.uint8)
    records[:, :, 0] %= 10
    for name, batch in zip(labelled.BATCHES, records, strict=True):
        batch.tofile(folder / name)
    return records.reshape(12, RECORD)


def test_image_is_grey_row_by_row(tmp_path):
    records = cifar(tmp_path / "cifar")
    assert prepare("image", tmp_path / "out", "--from-dir", tmp_path / "cifar", "--hold-out", 3) == 0
    found = [row for split in SPLITS for row in rows_of(tmp_path / "out", split)]
    assert [len(rows_of(tmp_path / "out", split)) for split in SPLITS] == [7, 3, 2]
    assert [label for label, _ in found] == [str(record[0]) for record in records]
    red, green, blue = records[0, 1:].reshape(3, 1024).astype(float)
    assert np.abs(np.array(found[0][1].split(), float) - (0.299 * red + 0.587 * green + 0.114 * blue)).max() <= 0.5


def test_pathfinder_is_the_published_pictures(tmp_path, capsys):
    hard, draw = tmp_path / "pathfinder32" / labelled.HARD, np.random.default_rng(0)
    pictures = draw.integers(256, size=(20, 32, 32)).astype(np.uint8)
    (hard / "metadata").mkdir(parents=True)
    for folder in (0, 1):
        (hard / "imgs" / str(folder)).mkdir(parents=True)
        lines = []
        for number in range(10):
            picture = 10 * folder + number
            Image.fromarray(pictures[picture]).save(hard / "imgs" / str(folder) / f"sample_{number}.png")
            lines.append(f"imgs/{folder} sample_{number}.png {number} {picture % 2} 1.8 6 2 5 0.75 1.5")
        write_lines(hard / "metadata" / f"{folder}.npy", lines)
    assert prepare("pathfinder", tmp_path / "out", "--from-dir", hard.parent) == 0
    found = [rows_of(tmp_path / "out", split) for split in SPLITS]
    assert [len(rows) for rows in found] == [16, 2, 2]
    expected = [(str(number % 2), labelled.line(picture.flatten())) for number, picture in enumerate(pictures)]
    assert sorted(itertools.chain(*found)) == sorted(expected)
    (hard / "imgs" / "1" / "sample_3.png").unlink()
    line = refusal(capsys, "pathfinder", tmp_path / "new", "--from-dir", hard.parent)
    assert "1.npy, line 4: must be the folder and name of a picture" in line


@pytest.mark.parametrize(
    ("task", "flags", "said"),
    [
        ("image", ("--from-dir", "{aan}"), "lacks data_batch_1.bin"),
        ("image", ("--from-dir", "{cut}"), "test_batch.bin: is not a batch"),
        ("image", ("--from-dir", "{cifar}", "--hold-out", 10), "--hold-out 10: there are 10 training pictures"),
        ("pathfinder", ("--from-dir", "{cifar}"), f"lacks {labelled.HARD}/metadata"),
        ("retrieval", ("--from-dir", "{aan}"), "new_aan_pairs.train.tsv, line 3: must be LABEL, two names"),
    ],
)
def test_bad_input_ends_in_one_line_and_nothing_is_written(tmp_path, capsys, task, flags, said):
    papers(tmp_path / "aan", "2.0\te\tf\tfifth\tsixth\n")
    cifar(tmp_path / "cifar")
    cifar(tmp_path / "cut")
    (tmp_path / "cut" / "test_batch.bin").write_bytes(b"\x01" * (RECORD - 1))
    places = {name: tmp_path / name for name in ("aan", "cifar", "cut")}
    assert said in refusal(capsys, task, tmp_path / "out", *(str(value).format(**places) for value in flags))
    assert not (tmp_path / "out").exists()
