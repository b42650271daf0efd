"""GLUE's files to data-bins: columns by name, lines that are not whole, pieces of a language model; unusable files."""

import json
import re
from pathlib import Path

import pytest

import prepare_glue
from fairseq_luna.commands.preparing.pieces import learn_pieces
from pasted import dry_run
from reader_data import read_texts, reviews, write_lines

PAIRS = [(label, first, second) for (label, first), (_, second) in zip(reviews(20, 1), reviews(20, 2), strict=True)]
HEADER = "id\tqid1\tqid2\tquestion1\tquestion2\tis_duplicate"
LINES = [f"{number}\t7\t8\t{first}\t{second}\t{label}" for number, (label, first, second) in enumerate(PAIRS)]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """QQP, with a line that is not whole, and the pieces of a language model."""
    source = tmp_path / "QQP"
    source.mkdir()
    write_lines(source / "train.tsv", [HEADER, *LINES[:7], "99\tgood", *LINES[7:14]])
    write_lines(source / "dev.tsv.gz", [HEADER, *LINES[14:]])
    write_lines(tmp_path / "text", (text for pair in PAIRS for text in pair[1:]))
    learn_pieces([tmp_path / "text"], tmp_path / "words", vocabulary=40, coverage=1.0)
    return source


def prepare(task: str, folder: Path, *flags: object) -> int:
    given = (task, "--from-dir", folder, "--out", folder.parent / "out", "--workers", "1", *flags)
    return prepare_glue.main([*map(str, given)])


def test_pairs_with_their_labels(folder, capsys):
    assert prepare("QQP", folder, "--pieces-of", folder.parent / "words") == 0
    shown = capsys.readouterr().out
    assert "14 of train.tsv, 6 of dev.tsv.gz; left out of train.tsv: 1;" in shown
    command = dry_run(shown.splitlines()[-1])
    assert "--num-classes 2" in command and f"--save-dir {folder.parent}/out/checkpoints " in command
    data = folder.parent / "out" / "bin"
    for split, pairs in (("train", PAIRS[:14]), ("valid", PAIRS[14:])):
        columns = [read_texts(data / name / split, data / name / "dict.txt") for name in ("label", "input0", "input1")]
        assert list(zip(*columns, strict=True)) == pairs
    assert (data / "input0" / "dict.txt").read_bytes() == (data / "input1" / "dict.txt").read_bytes()
    assert not (folder.parent / "out" / "joint.model").exists()
    assert json.loads((folder.parent / "out" / "settings.json").read_text())["task"] == "QQP"
    assert prepare("QQP", folder) == 2
    assert re.search(r"--pieces-of joint.model of .*, not null: use another --out", capsys.readouterr().err)
    for name in ("words/joint.model", "QQP/train.tsv"):
        path = folder.parent / name
        content = path.read_bytes()
        path.write_bytes(content[:-2] + bytes([content[-2] ^ 1]) + content[-1:])
        assert prepare("QQP", folder, "--pieces-of", folder.parent / "words") == 2
        assert re.search(rf"{path.name} of .*, not {path.name} of .*: use another --out", capsys.readouterr().err)
        path.write_bytes(content)


@pytest.mark.parametrize(
    ("task", "header"), [("SST-2", "sentence\tlabel"), ("QNLI", "index\tquestion\tsentence\tlabel")]
)
def test_the_columns_of_the_other_tasks(tmp_path, task, header):
    columns = prepare_glue.TASKS[task]
    names = header.split("\t")
    write_lines(tmp_path / "dev.tsv", [header, "\t".join(f"a {name}" if name != "label" else "1" for name in names)])
    (row,) = prepare_glue.read(tmp_path / "dev.tsv", columns, prepare_glue.Counter())
    assert row == ["1", *(f"a {name}" for name in columns.texts)]


@pytest.mark.parametrize(
    ("name", "lines", "flags", "said"),
    [
        ("train.tsv", None, (), "lacks train.tsv or train.tsv.gz"),
        ("train.tsv", ["sentence\tlabel", "fine\t1"], (), "train.tsv, line 1: there is no column is_duplicate"),
        ("train.tsv", [HEADER, "1\t7\t8\tgood\tfine\t"], (), "train.tsv, line 2: its label is ''"),
        ("train.tsv", [HEADER, "1\t7\t8\tgood\tfine\t0"], (), "train.tsv: all labels are 0"),
        ("dev.tsv.gz", [HEADER, "1\t7\t8\tgood\tfine\t2"], (), "the training text does not have its label 2"),
        ("dev.tsv.gz", LINES[:0], (), "dev.tsv.gz, line 1: there is no column is_duplicate"),
        (None, None, ("--pieces-of", "nowhere"), "--pieces-of nowhere lacks joint.model"),
    ],
)
def test_unusable_files_are_refused_and_nothing_is_written(folder, capsys, name, lines, flags, said):
    if lines is not None:
        write_lines(folder / name, lines)
    elif name:
        (folder / name).unlink()
    assert prepare("QQP", folder, *flags) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert said in line
    assert not (folder.parent / "out").exists()
