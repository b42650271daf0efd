"""Texts are written to three splits: given ones, several in a row, or the end of the training text."""

from pathlib import Path

import pytest

from corpora.catalogue import Split
from corpora.gathering import gather
from corpus_files import pairs, sgml, write_pairs
from fairseq_luna.usage_error import UsageError

TRAIN = Split("train", ("train",), ())
VALID = Split("valid", ("valid",), ())
TEST = Split("test", ("test",), (), sentences=3, hint=(2, "this is the filtered one"))
SPLITS = (TRAIN, VALID, TEST)


def files(folder: Path, stem: str, count: int, seed: int) -> tuple[Path, Path]:
    write_pairs(folder, stem, pairs(count, seed))
    return folder / f"{stem}.en", folder / f"{stem}.de"


def lines(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8").splitlines()


def test_texts_of_a_split_follow_each_other(tmp_path: Path) -> None:
    texts = {
        "train": [files(tmp_path, "a", 4, 1), files(tmp_path, "b", 5, 2)],
        "valid": [files(tmp_path, "v", 2, 3)],
        "test": [files(tmp_path, "t", 3, 4)],
    }
    gather(SPLITS, texts, tmp_path / "out", hold_out=0)
    assert lines(tmp_path / "out" / "train.de") == [german for _, german in pairs(4, 1) + pairs(5, 2)]
    assert lines(tmp_path / "out" / "test.en") == [english for english, _ in pairs(3, 4)]
    assert len(list((tmp_path / "out").iterdir())) == 6


@pytest.mark.parametrize("given", [[], ["valid"]], ids=["both-held-out", "test-held-out"])
def test_missing_splits_are_taken_from_the_end(tmp_path: Path, given: list[str]) -> None:
    texts = {"train": [files(tmp_path, "a", 20, 1)], "valid": [], "test": []}
    for name in given:
        texts[name] = [files(tmp_path, name, 2, 5)]
    gather(SPLITS, texts, tmp_path / "out", hold_out=4)
    train, valid, test = (lines(tmp_path / "out" / f"{name}.en") for name in ("train", "valid", "test"))
    english = [english for english, _ in pairs(20, 1)]
    assert test == english[-4:]
    if given:
        assert (train, valid) == (english[:16], [english for english, _ in pairs(2, 5)])
    else:
        assert (train, valid) == (english[:12], english[12:16])


def test_a_training_text_too_short_to_hold_out_is_refused(tmp_path: Path) -> None:
    texts = {"train": [files(tmp_path, "a", 8, 1)], "valid": [], "test": []}
    with pytest.raises(UsageError, match="--hold-out 4: the training text has only 8 pairs"):
        gather(SPLITS, texts, tmp_path / "out", hold_out=4)


@pytest.mark.parametrize(("count", "reason"), [(2, "; this is the filtered one"), (4, "")])
def test_a_test_set_of_a_wrong_size_is_refused(tmp_path: Path, count: int, reason: str) -> None:
    texts = {
        "train": [files(tmp_path, "a", 8, 1)],
        "valid": [files(tmp_path, "v", 2, 1)],
        "test": [files(tmp_path, "t", count, 1)],
    }
    with pytest.raises(UsageError, match=f"^test: {count} sentences where 3 are expected{reason}$"):
        gather(SPLITS, texts, tmp_path / "out", hold_out=0)


def test_sgml_with_different_numbers_is_refused(tmp_path: Path) -> None:
    english, german = tmp_path / "src.en.sgm", tmp_path / "ref.de.sgm"
    english.write_bytes(sgml(["a", "b", "c"]))
    german.write_bytes(sgml(["a", "b", "c"]).replace(b'id="2"', b'id="4"'))
    texts = {"train": [files(tmp_path, "a", 8, 1)], "valid": [files(tmp_path, "v", 2, 1)], "test": [(english, german)]}
    with pytest.raises(UsageError, match=r"src\.en\.sgm and .*ref\.de\.sgm number their segments differently"):
        gather(SPLITS, texts, tmp_path / "out", hold_out=0)
