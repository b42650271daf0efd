"""Labelled texts from files to data-bins of one dictionary; unusable text."""

import gzip
import itertools
from pathlib import Path

import pytest
from fairseq.data import data_utils

import prepare_imdb
from corpora import labelled
from fairseq_luna.usage_error import UsageError
from pasted import dry_run
from reader_data import read_texts, reviews, write_lines

TRAIN, TEST = reviews(60, 1), reviews(12, 2)
BAD, GOOD = "0\tbad\n", "1\tfine\n"


def write(path: Path, texts: list[tuple[str, str]]) -> None:
    write_lines(path, (f"{label}\t{text}" for label, text in texts))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    source = tmp_path / "reviews"
    source.mkdir()
    write(source / "train.tsv.gz", TRAIN)
    write(source / "test.tsv", TEST)
    return source


def prepare(folder: Path, *flags: str) -> int:
    out = folder.parent / "out"
    flags = ("--from-dir", str(folder), "--out", str(out), "--vocabulary-size", "40", "--workers", "1", *flags)
    return prepare_imdb.main(flags)


def read_back(data: Path, split: str) -> list[tuple[str, str]]:
    columns = [read_texts(data / name / split, data / name / "dict.txt") for name in ("label", "input0")]
    return list(zip(*columns, strict=True))


def test_every_review_with_its_label(folder, capsys):
    assert prepare(folder, "--hold-out", "10", "--vocabulary-size", "9") == 2
    assert "cannot learn --vocabulary-size 9" in capsys.readouterr().err
    assert prepare(folder, "--hold-out", "10", "--training", "7") == 0
    out = folder.parent / "out"
    for name, first in (("bin", 50), ("bin_7", 7)):
        for split, given in (("train", TRAIN[:first]), ("valid", TRAIN[50:]), ("test", TEST)):
            assert sorted(read_back(out / name, split)) == sorted(given)
            texts = data_utils.load_indexed_dataset(str(out / name / "input0" / split))
            assert list(texts.sizes) == sorted(texts.sizes)
        for part in ("input0", "label"):
            assert (out / name / part / "dict.txt").read_bytes() == (out / "bin" / part / "dict.txt").read_bytes()
    assert (out / "bin" / "label" / "dict.txt").read_text().startswith("0 1\n1 1\n")
    command = dry_run(capsys.readouterr().out.splitlines()[-1])
    assert f"{out}/bin " in command and f"--save-dir {out}/checkpoints " in command and "--num-classes 2" in command
    changed = [TRAIN[0], (TRAIN[1][0], TRAIN[1][1].upper()), *TRAIN[2:]]
    (folder / "train.tsv.gz").unlink()
    write(folder / "train.tsv", changed)
    assert prepare(folder, "--hold-out", "10") == 2
    assert "was made with files (train) train.tsv.gz" in capsys.readouterr().err


def test_a_valid_of_its_own(folder, tmp_path):
    write(folder / "valid.tsv", TEST[:5])
    files = {split: labelled.find(folder, split) for split in ("train", "valid", "test")}
    assert labelled.check(files, 10) == (60, ["0", "1"])
    labelled.gather(files, 10, tmp_path / "raw")
    for split, given in (("train", TRAIN), ("valid", TEST[:5]), ("test", TEST)):
        columns = [(tmp_path / "raw" / f"{split}.{name}").read_text().splitlines() for name in ("label", "text")]
        assert list(zip(*columns, strict=True)) == given


def test_the_published_folders_are_read_in_an_order_that_mixes_the_labels(tmp_path):
    for split, texts in (("train", TRAIN), ("test", TEST)):
        for name in ("pos", "neg", "unsup"):
            (tmp_path / split / name).mkdir(parents=True)
        for number, (label, text) in enumerate(texts):
            (tmp_path / split / ("neg", "pos")[int(label)] / f"{number}_8.txt").write_text(text)
        (tmp_path / split / "unsup" / "0_0.txt").write_text("good or bad")
    files = labelled.find_all(tmp_path, 10)
    assert labelled.check(files, 10, [6]) == (50, ["0", "1"])
    labels = [label for label, _ in labelled.read(files["train"])]
    assert sum(label != other for label, other in itertools.pairwise(labels)) > 15
    for split, texts in (("train", TRAIN), ("test", TEST)):
        assert sorted(labelled.read(files[split])) == sorted(texts)
        assert labelled.fingerprint(files[split])["bytes"] == sum(len(text) for _, text in texts)
    (tmp_path / "test" / "pos" / "0_9.txt").touch()
    with pytest.raises(UsageError, match=r"0_9\.txt: has no text"):
        labelled.check(files, 10)


@pytest.mark.parametrize(
    ("name", "text", "flags", "said"),
    [
        ("train.tsv.gz", None, (), "lacks train.tsv or train.tsv.gz"),
        ("test.tsv", "1\tgood\nno tab\n", (), "test.tsv, line 2: is not LABEL<TAB>TEXT"),
        ("test.tsv", "1\t \n", (), "test.tsv, line 1: is not LABEL<TAB>TEXT"),
        ("test.tsv", "2\tfine\n", ("--hold-out", "10"), "test: the training text does not have its label 2"),
        ("test.tsv", "1\tfine\n", ("--hold-out", "60"), "--hold-out 60:"),
        (
            "test.tsv",
            "1\tfine\n",
            ("--hold-out", "10", "--training", "50"),
            "--training 50: there are 50 training texts",
        ),
        ("valid.tsv", "1\tfine\n", ("--hold-out", "10"), "has its own valid; leave the flag out"),
        ("train.tsv.gz", "1\tfine\n1\tgood\n1\tgood\n", ("--hold-out", "1"), "all labels are 1; give two or more"),
        (
            "train.tsv.gz",
            BAD * 5 + GOOD * 3,
            ("--hold-out", "2"),
            "train.tsv.gz all have the label 1; shuffle its lines",
        ),
        (
            "train.tsv.gz",
            BAD * 2 + (GOOD + BAD) * 2,
            ("--hold-out", "2", "--training", "2"),
            "--training 2: the first texts of ",
        ),
    ],
)
def test_unusable_text_is_refused_and_nothing_is_written(folder, capsys, name, text, flags, said):
    path = folder / name
    if text is None:
        path.unlink()
    else:
        path.write_bytes(gzip.compress(text.encode()) if path.suffix == ".gz" else text.encode())
    assert prepare(folder, *flags) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert said in line
    assert not (folder.parent / "out").exists()
