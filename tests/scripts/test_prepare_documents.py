"""Documents from files to data-bins of several lengths, all of the same text; unusable text."""

import itertools
import shutil
from pathlib import Path

import pytest
from fairseq.data import Dictionary, data_utils

import prepare_documents
from corpora.examples import Limit, parts
from corpus_files import pairs, write_pairs
from fairseq_luna.commands.preparing import pipeline
from fairseq_luna.commands.text_files import SEPARATOR
from pasted import dry_run

EMPTY = [("", "")]
LANGUAGES = ("en", "de")


def documents(lengths: list[int], seed: int) -> list[list[tuple[str, str]]]:
    sentences = iter(pairs(sum(lengths), seed))
    return [list(itertools.islice(sentences, length)) for length in lengths]


TRAIN = {"news": documents([9, 1, 6] * 6, 1), "talks": documents([40, 17] * 2, 2)}
TEST = {"news": documents([3, 5], 3), "talks": documents([11], 4)}


def lines_of(given: list[list[tuple[str, str]]]) -> list[tuple[str, str]]:
    return [pair for document in given for pair in (*document, *EMPTY)]


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two sources; one ends without an empty line, the other has two in a row."""
    folder = tmp_path_factory.mktemp("documents")
    for source in TRAIN:
        write_pairs(folder / source, "train", lines_of(TRAIN[source])[:-1], gzipped=True)
        for split in ("valid", "test"):
            write_pairs(folder / source, split, [*EMPTY, *lines_of(TEST[source]), *EMPTY])
    return folder


@pytest.fixture(scope="module")
def prepared(sources: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("prepared") / "out"
    assert prepare("--from-dir", sources, "--out", out, "--pieces", 60) == 0
    assert prepare("--from-dir", sources, "--out", out, "--segments", 4) == 0
    return out


def prepare(*flags: object) -> int:
    return prepare_documents.main(["--workers", "1", "--vocabulary-size", "90", *map(str, flags)])


def read_back(data: Path, split: str, language: str) -> list[str]:
    dictionary = Dictionary.load(str(data / f"dict.{language}.txt"))
    dataset = data_utils.load_indexed_dataset(str(data / f"{split}.en-de.{language}"), dictionary)
    return [dictionary.string(dataset[index]) for index in range(len(dataset))]


def segments(line: str) -> list[str]:
    return ["".join(part.split()).replace("▁", " ").strip() for part in line.split(SEPARATOR)]


LIMITS = ["pieces_60", "segments_4"]


@pytest.mark.parametrize("limit", LIMITS)
def test_every_length_has_the_same_text_and_dictionary(limit: str, prepared: Path) -> None:
    data = prepared / limit / "bin"
    for side, language in enumerate(LANGUAGES):
        for split, given in (("train", TRAIN), ("test", TEST)):
            text = [segment for line in read_back(data, split, language) for segment in segments(line)]
            assert text == [pair[side] for source in given.values() for document in source for pair in document]
        assert (data / f"dict.{language}.txt").read_bytes() == (
            prepared / "pieces_60" / "bin" / "dict.en.txt"
        ).read_bytes()


@pytest.mark.parametrize("limit", LIMITS)
def test_examples_are_short_enough_and_of_one_document(limit: str, prepared: Path) -> None:
    unit, most = limit.split("_")
    reference = prepared / limit / "reference"
    labels = (reference / "test.documents").read_text().splitlines()
    text = [(reference / f"test.{language}").read_text().splitlines() for language in LANGUAGES]
    cut = [read_back(prepared / limit / "bin", "test", language) for language in LANGUAGES]
    found: dict[str, list[tuple[str, ...]]] = {}
    for label, sides, pieces in zip(labels, zip(*text, strict=True), zip(*cut, strict=True), strict=True):
        split = [line.split(f" {SEPARATOR} ") for line in sides]
        assert [segments(line) for line in pieces] == split
        used = max(len(line.split()) + 1 for line in pieces) if unit == "pieces" else len(split[0])
        assert used <= int(most)
        found.setdefault(label, []).extend(zip(*split, strict=True))
    assert found == {
        f"{source}\t{number}": document for source in TEST for number, document in enumerate(TEST[source], 1)
    }


def test_another_run_reuses_and_other_settings_are_refused(
    sources: Path, prepared: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    flags = ["--from-dir", sources, "--out", prepared, "--pieces", 60]
    assert prepare(*flags) == 0
    command = dry_run(capsys.readouterr().out.splitlines()[-1])
    assert f"{prepared}/pieces_60/bin " in command and f"--save-dir {prepared}/pieces_60/checkpoints " in command
    assert prepare(*flags, "--vocabulary-size", 91) == 2
    assert capsys.readouterr().err.endswith("was made with size 90, not 91: use another --out\n")
    other = Path(shutil.copytree(sources, tmp_path / sources.name))
    path = other / "talks" / "valid.de"
    path.write_text(path.read_text().replace("alte", "neue"))
    assert prepare("--from-dir", other, *flags[2:]) == 2
    assert "was made with files (talks, valid, 2) valid.de of " in capsys.readouterr().err


def test_the_command_for_long_examples_has_their_length(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for split in ("train", "valid", "test"):
        write_pairs(tmp_path / "given", split, pairs(400, 5))
    out = tmp_path / "out"
    assert prepare("--from-dir", tmp_path / "given", "--out", out, "--segments", 1, 400) == 0
    short, long = (dry_run(line) for line in capsys.readouterr().out.splitlines()[-2:])
    assert "--max-source-positions 2048 " in short and "--max-source-positions 2048 " not in long
    longest = max(len(line.split()) + 1 for line in read_back(out / "segments_400" / "bin", "train", "en"))
    assert longest > 2048


def test_other_languages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Up to fairseq-preprocess, which is not run."""
    for split in ("train", "valid", "test"):
        write_pairs(tmp_path / "given", split, lines_of(TRAIN["talks"]))
    commands: list[list[str]] = []

    def make_bin(_command: str, arguments: list[str], _log: Path) -> None:
        commands.append(arguments)
        Path(arguments[-1]).mkdir(parents=True)

    monkeypatch.setattr(pipeline, "run_fairseq", make_bin)
    out = tmp_path / "out"
    flags = ("--source-lang", "de", "--target-lang", "en", "--segments", 1)
    assert prepare("--from-dir", tmp_path / "given", "--out", out, *flags) == 0
    assert commands[0][:4] == ["--source-lang", "de", "--target-lang", "en"]
    written = (out / "segments_1" / "reference" / "test.en").read_text().splitlines()
    assert written == [pair[0] for document in TRAIN["talks"] for pair in document]


def test_parts_are_filled_from_the_start() -> None:
    sizes = [(3, 2), (2, 5), (9, 1), (1, 1)]

    def taken(limit: Limit) -> list[list[int]]:
        return [list(range(4))[part] for part in parts(sizes, limit)]

    assert taken(Limit("pieces", 9)) == [[0, 1], [2], [3]]  # the third is too long, and stays whole
    assert taken(Limit("pieces", 8)) == [[0], [1], [2], [3]]
    assert taken(Limit("pieces", 19)) == [[0, 1, 2, 3]]
    assert taken(Limit("segments", 3)) == [[0, 1, 2], [3]]


@pytest.mark.parametrize(
    ("train", "said"),
    [
        ([("a", "b"), ("", "c")], "train.en, line 2: empty, but the other language has text there"),
        ([("a", "b"), ("c", " ")], "train.de, line 2: empty, but the other language has text there"),
        ([(f"a {SEPARATOR}", "b")], f"train.de, line 1: has {SEPARATOR}, which is for joining"),
        (EMPTY * 2, "train.en: has no text"),
    ],
    ids=["empty source", "empty target", "separator", "no text"],
)
def test_unusable_text_is_refused_and_nothing_written(
    train: list[tuple[str, str]], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for split in ("valid", "test"):
        write_pairs(tmp_path / "given", split, TEST["news"][0])
    write_pairs(tmp_path / "given", "train", train)
    assert prepare("--from-dir", tmp_path / "given", "--out", tmp_path / "out", "--pieces", 60) == 2
    shown = capsys.readouterr().err
    assert shown.count("\n") == 1
    assert shown.endswith(f"{said}\n")
    assert not (tmp_path / "out").exists()


def test_sides_of_different_lengths_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for split in ("train", "val", "test_2016_flickr"):
        write_pairs(tmp_path, split, TEST["news"][0])
    (tmp_path / "val.de").write_text("nur eine\n")
    assert prepare("--from-dir", tmp_path, "--out", tmp_path / "out", "--segments", 4) == 2
    assert "val.en has 3 lines but " in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_missing_files_and_limits_are_named(sources: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = ("--out", tmp_path / "out")
    write_pairs(tmp_path / "given", "train", TRAIN["news"][0])
    for flags, said in (
        (("--from-dir", sources), "give --pieces N, --segments N or both"),
        (
            ("--from-dir", sources, "--pieces", 60, "--source-lang", "fr"),
            "lacks train.fr, train.de, valid.fr, valid.de",
        ),
        (("--from-dir", tmp_path / "given", "--pieces", 60), "given lacks valid.en, valid.de, test.en, test.de"),
        (("--from-dir", tmp_path / "none", "--pieces", 60), "none: no such folder"),
    ):
        assert prepare(*flags, *out) == 2
        shown = capsys.readouterr().err
        assert (shown.count("\n"), said in shown) == (1, True), shown
    assert not (tmp_path / "out").exists()
