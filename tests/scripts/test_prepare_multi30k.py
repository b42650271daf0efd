"""Multi30K from files to a data-bin, in both modes; stopped and changed runs."""

from pathlib import Path

import pytest
from fairseq.data import Dictionary, data_utils

import prepare_multi30k
from corpus_files import pairs, write_pairs
from fairseq_luna.commands.preparing import pipeline
from pasted import dry_run

TRAIN, VALID, TEST = pairs(300, 1), pairs(20, 2), pairs(25, 3)


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The six files, with an empty side in the third and the last pair."""
    folder = tmp_path_factory.mktemp("multi30k")
    train = [*TRAIN[:2], ("Nothing to it.", ""), *TRAIN[2:], ("", "Nichts.")]
    write_pairs(folder, "train", train, gzipped=True)
    write_pairs(folder, "val", VALID, gzipped=True)
    write_pairs(folder, "test_2016_flickr", TEST)
    return folder


def prepare(*flags: object) -> int:
    return prepare_multi30k.main(["--workers", "1", *map(str, flags)])


def read_back(data: Path, split: str, language: str) -> list[str]:
    dictionary = Dictionary.load(str(data / f"dict.{language}.txt"))
    dataset = data_utils.load_indexed_dataset(str(data / f"{split}.en-de.{language}"), dictionary)
    return [dictionary.string(dataset[index]) for index in range(len(dataset))]


def side(of: list[tuple[str, str]], language: str) -> list[str]:
    return [pair[language == "de"] for pair in of]


def test_sentencepiece_stopped_resumed_and_changed(
    published: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    flags = ["--from-dir", published, "--out", out, "--vocabulary-size", "90"]

    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(pipeline, "run_fairseq", stop)
        assert prepare(*flags) == 130
    assert not (out / "bin").exists()
    capsys.readouterr()

    assert prepare(*flags) == 0
    shown = capsys.readouterr().out
    assert shown.count(": reusing ") == 5
    assert "data: making" in shown
    assert "training pairs: 300 kept, 2 dropped; one side empty: 2" in shown
    command = dry_run(shown.splitlines()[-1])
    assert f"{out}/bin " in command and f"--save-dir {out}/checkpoints " in command

    for split, of in (("train", TRAIN), ("valid", VALID), ("test", TEST)):
        for language in ("en", "de"):
            text = ["".join(line.split()).replace("▁", " ").strip() for line in read_back(out / "bin", split, language)]
            assert text == side(of, language)
    assert (out / "reference" / "test.de").read_bytes() == (published / "test_2016_flickr.de").read_bytes()
    assert {path.name for path in out.iterdir()} == {
        *("bin", "reference", "joint.model", "joint.vocab", "settings.json", "work")
    }

    before = (out / "bin" / "train.en-de.en.bin").stat().st_mtime_ns
    assert prepare(*flags) == 0
    assert "data: reusing" in capsys.readouterr().out
    assert prepare(*flags[:-1], "91") == 2
    assert capsys.readouterr().err.endswith("was made with size 90, not 91: use another --out\n")
    assert prepare(*flags[:-2], "--bpe", "subword-nmt") == 2
    assert "was made with --bpe sentencepiece, not subword-nmt" in capsys.readouterr().err
    write_pairs(tmp_path / "other", "train", [*TRAIN[1:], TRAIN[0]])
    write_pairs(tmp_path / "other", "val", VALID)
    write_pairs(tmp_path / "other", "test", TEST)
    assert prepare(*flags, "--from-dir", tmp_path / "other") == 2
    assert "was made with files " in capsys.readouterr().err
    assert (out / "bin" / "train.en-de.en.bin").stat().st_mtime_ns == before


def test_merges_of_lower_cased_tokens(published: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = tmp_path / "out"
    flags = ["--from-dir", published, "--out", out, "--bpe", "subword-nmt", "--merges", "60"]
    assert prepare(*flags) == 0
    tokens = [line.lower().removesuffix(".") + " ." for line in side(TEST, "de")]
    assert (out / "reference" / "test.tok.de").read_text(encoding="utf-8").splitlines() == tokens
    assert (out / "reference" / "test.de").read_text(encoding="utf-8").splitlines() == side(TEST, "de")
    assert [line.replace("@@ ", "") for line in read_back(out / "bin", "test", "de")] == tokens
    assert len(read_back(out / "bin", "train", "en")) == 300
    assert (out / "bin" / "dict.en.txt").read_bytes() == (out / "bin" / "dict.de.txt").read_bytes()
    assert len((out / "codes").read_text(encoding="utf-8").splitlines()) == 61


def test_tokenised_text_is_unchanged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Up to the pieces, without fairseq-preprocess."""
    out = tmp_path / "out"
    write_pairs(tmp_path / "given", "train", [("It &apos;s .", "Es ist 's .")] * 9)
    flags = ["--from-dir", tmp_path / "given", "--hold-out", "2", "--out", out, "--bpe", "subword-nmt", "--tokenised"]
    monkeypatch.setattr(pipeline, "run_fairseq", lambda _command, arguments, _log: Path(arguments[-1]).mkdir())
    assert prepare(*flags) == 0
    cut = (out / "work" / "clean" / "train.en").read_text(encoding="utf-8")
    assert cut == "It &apos;s .\n" * 5
    assert not (out / "reference" / "test.tok.de").exists()


def test_a_folder_that_lacks_files_is_refused_with_their_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    write_pairs(tmp_path / "some", "train", TRAIN)
    assert prepare("--from-dir", tmp_path / "some", "--out", tmp_path / "out") == 2
    shown = capsys.readouterr().err
    assert shown.count("\n") == 1
    assert "val.en.gz" in shown
    assert "test_2016_flickr.de.gz" in shown
    assert "--hold-out N" in shown
    assert not (tmp_path / "out").exists()
