"""Moses' tokens, joint merges of both languages, and pieces that fairseq can read."""

import io
import pickle
from pathlib import Path

import pytest
from subword_nmt.learn_bpe import learn_bpe

from corpora.merges import Merge, learn_merges
from corpora.moses import Tokenise
from corpus_files import pairs, text
from fairseq_luna.commands.preparing.parallel import transform
from fairseq_luna.commands.preparing.pieces import Cut, learn_pieces
from fairseq_luna.usage_error import UsageError


@pytest.fixture(scope="module")
def texts(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder = tmp_path_factory.mktemp("texts")
    for language, lines in zip(("en", "de"), zip(*pairs(300), strict=True), strict=True):
        (folder / f"train.{language}").write_bytes(text(lines))
    return [folder / "train.en", folder / "train.de"]


@pytest.mark.parametrize(
    ("tokenise", "line", "expected"),
    [
        (Tokenise("de"), "„Guten Tag“, sagte er.", "&quot; Guten Tag &quot; , sagte er ."),
        (Tokenise("en"), "It\u2019s John's, isn't it?", "It &apos;s John &apos;s , isn &apos;t it ?"),
        (Tokenise("en"), "a\u200bb\tc\x07d\u2028e", "a b c d e"),
        (Tokenise("en"), "a well-known A&B", "a well-known A &amp; B"),
        (Tokenise("en", split_hyphens=True), "a well-known", "a well @-@ known"),
        (Tokenise("de", lower=True), "Ein MANN.", "ein mann ."),
        (Tokenise("de"), "Am 3. Mai kosten 1.000 z.B. 5,50 €.", "Am 3. Mai kosten 1.000 z.B. 5,50 € ."),
        (Tokenise("en"), "", ""),
        (Tokenise("en"), " \u00a0 ", ""),
    ],
)
def test_tokens(tokenise: Tokenise, line: str, expected: str) -> None:
    assert tokenise([line]) == [expected]
    assert pickle.loads(pickle.dumps(tokenise))([line]) == [expected]


def test_two_workers_write_the_same_as_one(texts: list[Path], tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.write_bytes(texts[1].read_bytes() * 20)  # three chunks of a worker
    for workers in (1, 2):
        transform(Tokenise("de"), source, tmp_path / f"by-{workers}", what="tokenising", workers=workers)
    written = (tmp_path / "by-2").read_bytes()
    assert written == (tmp_path / "by-1").read_bytes()
    assert written.count(b"\n") == 6000


@pytest.mark.parametrize("workers", [1, 2])
def test_merges_are_learned_from_both_texts(texts: list[Path], tmp_path: Path, workers: int) -> None:
    codes = tmp_path / "codes"
    learn_merges(texts, codes, merges=60, workers=workers)
    whole = io.StringIO()
    learn_bpe(io.StringIO("".join(path.read_text(encoding="utf-8") for path in texts)), whole, 60)
    assert codes.read_text(encoding="utf-8") == whole.getvalue()


def test_joined_pieces_are_the_words(texts: list[Path], tmp_path: Path) -> None:
    learn_merges(texts, tmp_path / "codes", merges=40, workers=1)
    merge = Merge(tmp_path / "codes")
    lines = ["The old Lehrer reads unseen things.", ""]
    cut = merge(lines)
    assert "@@ " in cut[0]
    assert [line.replace("@@ ", "") for line in cut] == lines
    assert "\r" not in merge(["The old\rLehrer reads"])[0]


def test_fewer_merges_than_requested_are_reported(
    texts: list[Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    learn_merges(texts, tmp_path / "codes", merges=5000, workers=1)
    learned = len((tmp_path / "codes").read_text(encoding="utf-8").splitlines()) - 1
    shown = capsys.readouterr()
    assert f"only {learned} merges" in shown.out
    assert shown.err == ""


def test_a_text_without_words_is_refused(tmp_path: Path) -> None:
    (tmp_path / "empty").write_text("\n\n")
    with pytest.raises(UsageError, match="has no words"):
        learn_merges([tmp_path / "empty"], tmp_path / "codes", merges=5, workers=1)


def test_joined_sentencepieces_are_the_text(texts: list[Path], tmp_path: Path) -> None:
    learn_pieces(texts, tmp_path, vocabulary=90, coverage=1.0)
    cut = Cut(tmp_path / "joint.model")
    lines = texts[1].read_text(encoding="utf-8").splitlines()[:20]
    assert ["".join(line.split(" ")).replace("▁", " ").strip() for line in cut(lines)] == lines
    assert cut(["Ω heute", ""]) == ["▁ <unk> " + cut(["heute"])[0], ""]


def test_fewer_pieces_than_requested_are_reported(
    texts: list[Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    learn_pieces(texts, tmp_path, vocabulary=9000, coverage=1.0)
    learned = len((tmp_path / "joint.vocab").read_text(encoding="utf-8").splitlines())
    assert capsys.readouterr().out == f"  only {learned} pieces: the text has no more\n"
    lines = texts[0].read_text(encoding="utf-8").splitlines()
    assert [
        "".join(line.split(" ")).replace("▁", " ").strip() for line in Cut(tmp_path / "joint.model")(lines)
    ] == lines


def test_a_vocabulary_without_room_for_the_characters_is_refused_in_one_line(texts: list[Path], tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="SentencePiece cannot learn --vocabulary-size 9: ") as problem:
        learn_pieces(texts, tmp_path, vocabulary=9, coverage=1.0)
    assert "\n" not in str(problem.value)
