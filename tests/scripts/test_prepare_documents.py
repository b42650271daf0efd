"""Documents from files to data-bins of several lengths, all of the same text; unusable text."""

import itertools
import shlex
import shutil
from pathlib import Path

import pytest

import prepare_documents
from corpora.documents import Limit, parts
from corpus_files import pairs, write_pairs
from fairseq_luna.text_files import SEPARATOR
from reader_data import read_words

pytestmark = pytest.mark.usefixtures("fairseq_in_forks")

EMPTY = [("", "")]
LANGUAGES = ("en", "de")


def documents(lengths, seed):
    sentences = iter(pairs(sum(lengths), seed))
    return [list(itertools.islice(sentences, length)) for length in lengths]


TRAIN = {"news": documents([9, 1, 6] * 6, 1), "talks": documents([40, 17] * 2, 2)}
TEST = {"news": documents([3, 5], 3), "talks": documents([11], 4)}


def lines_of(given):
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


def read_back(data: Path, split: str, language: str, pair: str = "en-de") -> list[str]:
    return read_words(data / f"{split}.{pair}.{language}", data / f"dict.{language}.txt")


def segments(line: str) -> list[str]:
    return ["".join(part.split()).replace("▁", " ").strip() for part in line.split(SEPARATOR)]


EVERY_LIMIT = pytest.mark.parametrize("limit", ["pieces_60", "segments_4"])


@EVERY_LIMIT
def test_every_length_has_the_same_text_and_dictionary(limit, prepared):
    data = prepared / limit / "bin"
    for side, language in enumerate(LANGUAGES):
        for split, given in (("train", TRAIN), ("test", TEST)):
            text = [segment for line in read_back(data, split, language) for segment in segments(line)]
            assert text == [pair[side] for source in given.values() for document in source for pair in document]
        dictionary = prepared / "pieces_60" / "bin" / "dict.en.txt"
        assert (data / f"dict.{language}.txt").read_bytes() == dictionary.read_bytes()


@EVERY_LIMIT
def test_examples_are_short_enough_and_of_one_document(limit, prepared):
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


def test_another_run_reuses_and_other_settings_are_refused(sources, prepared, tmp_path, capsys):
    flags = ["--from-dir", sources, "--out", prepared, "--pieces", 60]
    assert prepare(*flags) == 0
    command = shlex.split(capsys.readouterr().out.splitlines()[-1])
    assert command[3:5] == ["--config-name", "documents"]
    data = prepared / "pieces_60"
    assert command[-2:] == [f"task.data={data}/bin", f"checkpoint.save_dir={data}/checkpoints"]
    other = Path(shutil.copytree(sources, tmp_path / sources.name))
    path = other / "talks" / "valid.de"
    path.write_text(path.read_text().replace("alte", "neue"))
    assert prepare("--from-dir", other, *flags[2:]) == 2
    assert "was made with files (talks, valid, 2) valid.de of " in capsys.readouterr().err


def test_other_languages_and_the_command_for_long_examples(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    given = pairs(400, 5)
    for split in ("train", "valid", "test"):
        write_pairs(tmp_path / "given", split, given)
    out, flags = tmp_path / "out", ("--source-lang", "de", "--target-lang", "en", "--segments", 1, 400)
    assert prepare("--from-dir", tmp_path / "given", "--out", out, *flags) == 0
    short, long = capsys.readouterr().out.splitlines()[-2:]
    assert (out / "segments_1" / "reference" / "test.en").read_text().splitlines() == [pair[0] for pair in given]
    data = out / "segments_400" / "bin"
    sides = (read_back(data, "train", language, "de-en") for language in LANGUAGES)
    longest = max(len(line.split()) + 1 for side in sides for line in side)
    assert longest > 2048
    assert "max_source_positions" not in short and f" task.max_source_positions={longest} " in long


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
        ([("a", "b\0")], "train.de, line 1: has a NUL byte at byte 2; the file is damaged, or is not UTF-8 text"),
    ],
    ids=["empty source", "empty target", "separator", "no text", "NUL"],
)
def test_unusable_text_is_refused_and_nothing_written(train, said, tmp_path, capsys):
    for split in ("valid", "test"):
        write_pairs(tmp_path / "given", split, TEST["news"][0])
    write_pairs(tmp_path / "given", "train", train)
    assert prepare("--from-dir", tmp_path / "given", "--out", tmp_path / "out", "--pieces", 60) == 2
    [line] = capsys.readouterr().err.splitlines()
    assert line.endswith(said)
    assert not (tmp_path / "out").exists()


def test_missing_files_and_limits_are_named(sources, tmp_path, capsys):
    for split in ("train", "val", "test_2016_flickr"):
        write_pairs(tmp_path / "uneven", split, TEST["news"][0])
    (tmp_path / "uneven" / "val.de").write_text("nur eine\n")
    for flags, said in (
        (("--from-dir", tmp_path / "uneven", "--segments", 4), "val.en has 3 lines but "),
        (("--from-dir", sources), "give --pieces N, --segments N or both"),
        (("--from-dir", sources, "--pieces", 60, "--source-lang", "fr"), "lacks train.fr, train.de, valid.fr"),
        (("--from-dir", tmp_path / "none", "--pieces", 60), "none: no such folder"),
    ):
        assert prepare(*flags, "--out", tmp_path / "out") == 2
        [line] = capsys.readouterr().err.splitlines()
        assert said in line
    assert not (tmp_path / "out").exists()
