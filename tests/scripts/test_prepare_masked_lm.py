"""Plain text from files to a data-bin for masked_lm, with the pieces and texts of a classifier; unusable text."""

import shutil
from pathlib import Path

import pytest

import prepare_imdb
import prepare_masked_lm
from pasted import dry_run
from reader_data import read_texts, reviews, write_lines

LABELLED = {"train": reviews(30, 1), "valid": reviews(6, 2), "test": reviews(6, 3)}
OLD = ["good film", "bad plot", "", "", "fine film"]
NEW = ["dull plot", " ", "rare film", ""]
DOCUMENTS = ["good film bad plot", "fine film", "dull plot", "rare film"]


@pytest.fixture
def texts(tmp_path: Path) -> dict[str, list[Path]]:
    """Two training files, the second gzipped, and a valid one."""
    found = {"old.en": OLD, "new.en.gz": NEW, "valid.en": ["poor film", "", "rare plot"]}
    for name, lines in found.items():
        write_lines(tmp_path / name, lines)
    return {"train": [tmp_path / "old.en", tmp_path / "new.en.gz"], "valid": [tmp_path / "valid.en"]}


def prepare(texts: dict[str, list[Path]], *flags: object) -> int:
    files = [argument for split, paths in texts.items() for argument in (f"--{split}", *paths)]
    return prepare_masked_lm.main([*map(str, (*files, *flags)), "--workers", "1"])


def test_documents_beside_the_texts_of_a_classifier(texts, tmp_path, capsys):
    for split, lines in LABELLED.items():
        write_lines(tmp_path / f"{split}.tsv", (f"{label}\t{text}" for label, text in lines))
    reviewed, out = tmp_path / "reviews", tmp_path / "out"
    flags = ("--from-dir", str(tmp_path), "--out", str(reviewed), "--vocabulary-size", "40", "--workers", "1")
    assert prepare_imdb.main(flags) == 0
    assert prepare(texts, "--for", reviewed, "--out", out) == 0
    shown = capsys.readouterr().out
    assert "4 training documents" in shown
    command = dry_run(shown.splitlines()[-1])
    assert "--task masked_lm " in command and f"--save-dir {out}/checkpoints " in command
    dictionary = out / "bin" / "dict.txt"
    assert dictionary.read_bytes() == (reviewed / "bin" / "input0" / "dict.txt").read_bytes()
    assert (out / "joint.model").read_bytes() == (reviewed / "joint.model").read_bytes()
    assert read_texts(out / "bin" / "train", dictionary) == DOCUMENTS
    assert read_texts(out / "bin" / "valid", dictionary) == ["poor film", "rare plot"]
    assert sorted(read_texts(out / "bin" / "train1", dictionary)) == sorted(text for _, text in LABELLED["train"])
    assert not list(out.glob("bin/valid1.*"))
    shutil.rmtree(out / "work")
    train = reviewed / "bin" / "input0" / "train.bin"
    train.write_bytes(train.read_bytes()[::-1])
    assert prepare(texts, "--for", reviewed, "--out", out) == 2
    assert "was made with --for (2) train.bin of " in capsys.readouterr().err
    assert prepare(texts, "--out", out) == 2
    assert "was made with size null, not 8000" in capsys.readouterr().err


def test_pieces_of_its_own(texts, tmp_path):
    write_lines(texts["train"][0], (text for _, text in LABELLED["train"]))
    out = tmp_path / "out"
    assert prepare(texts, "--out", out, "--vocabulary-size", 40) == 0
    assert read_texts(out / "bin" / "train", out / "bin" / "dict.txt")[1:] == DOCUMENTS[2:]
    assert not list(out.glob("bin/*1.*"))


def test_a_text_without_empty_lines_is_cut_between_its_lines(tmp_path, monkeypatch):
    monkeypatch.setattr(prepare_masked_lm, "_LONGEST_DOCUMENT", 20)
    for name, lines in (
        ("one", ["good film", "böse", "bad plot", "a very long line of text", "fine"]),
        ("two", ["end"]),
    ):
        write_lines(tmp_path / name, lines)
    cut = ["good film böse", "bad plot", "a very long line of text", "fine", "end"]
    assert list(prepare_masked_lm.documents([tmp_path / "one", tmp_path / "two"])) == cut


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (("--train", "nowhere.en"), "nowhere.en: there is no such file"),
        (("--valid", "empty.en"), "--valid empty.en: has no text"),
        (("--valid", "latin.en"), "latin.en, line 1: not UTF-8"),
        (("--train", "long.en"), "long.en, line 2: has 1,048,577 bytes; put line ends between its sentences"),
        (("--for", "."), "--for . lacks joint.model; give an output of scripts/prepare_imdb.py"),
        (("--for", ".", "--vocabulary-size", "8"), "--vocabulary-size 8: the pieces are those of --for ."),
    ],
)
def test_unusable_text_is_refused_and_nothing_is_written(texts, tmp_path, monkeypatch, capsys, flags, said):
    monkeypatch.chdir(tmp_path)
    write_lines(tmp_path / "empty.en", ["", " "])
    write_lines(tmp_path / "long.en", ["good", "film" * (1 << 18)])
    (tmp_path / "latin.en").write_bytes("Käse\n".encode("latin-1"))
    assert prepare(texts, *flags) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert said in line
    assert not (tmp_path / "data").exists()
