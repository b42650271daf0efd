"""SentencePiece's pieces: joined they are the text; too many are said, too few refused."""

from pathlib import Path

import pytest

from corpus_files import pairs, text
from fairseq_luna.commands.preparing.pieces import Cut, learn_pieces


@pytest.fixture
def texts(tmp_path: Path) -> list[Path]:
    paths = [tmp_path / "train.en", tmp_path / "train.de"]
    for path, lines in zip(paths, zip(*pairs(100), strict=True), strict=True):
        path.write_bytes(text(lines))
    return paths


def joined(cut: Cut, lines: list[str]) -> list[str]:
    return ["".join(line.split(" ")).replace("▁", " ").strip() for line in cut(lines)]


def test_joined_pieces_are_the_text(texts: list[Path], tmp_path: Path) -> None:
    learn_pieces(texts, tmp_path, vocabulary=90, coverage=1.0)
    cut = Cut(tmp_path / "joint.model")
    lines = texts[1].read_text(encoding="utf-8").splitlines()[:20]
    assert joined(cut, lines) == lines
    assert cut(["Ω heute", ""]) == ["▁ <unk> " + cut(["heute"])[0], ""]


def test_fewer_pieces_than_requested_are_reported(texts: list[Path], tmp_path: Path, capsys) -> None:
    learn_pieces(texts, tmp_path, vocabulary=9000, coverage=1.0)
    learned = len((tmp_path / "joint.vocab").read_text(encoding="utf-8").splitlines())
    assert capsys.readouterr().out == f"  only {learned} pieces: the text has no more\n"
