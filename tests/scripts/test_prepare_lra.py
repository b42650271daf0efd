"""The Long Range Arena's data: ListOps' values, Pathfinder's connections, files in the published formats, bad input."""

import math
import random
import shutil
from collections import Counter, deque
from contextlib import nullcontext
from itertools import islice, product
from pathlib import Path
from statistics import mean
from unittest.mock import patch

import numpy as np
import pytest
from fairseq.data import Dictionary, data_utils

import prepare_lra
from lra import listops, pathfinder
from lra.files import RECORD
from pasted import dry_run

SPLITS = ("train", "valid", "test")
SHORT = ("--length", "10", "40", "--examples", "60", "10", "20")


def prepare(task: str, out: Path, *flags: object, binarised: bool = False) -> int:
    # fairseq-preprocess takes seconds to start: only one test runs it.
    steps = dict.fromkeys(("binarise", "sort_by_length"), lambda *given: given[-1].mkdir())
    with nullcontext() if binarised else patch.multiple(prepare_lra, **steps):
        return prepare_lra.main([task, "--out", str(out), "--workers", "1", *map(str, flags)])


def read_back(out: Path, split: str, columns: tuple[str, ...] = ("label", "input0")) -> list[tuple[str, ...]]:
    texts = [(out / "work" / "examples" / f"{split}.{name}").read_text().splitlines() for name in columns]
    return list(zip(*texts, strict=True))


def read_data(data: Path, split: str, columns: tuple[str, ...]) -> list[tuple[str, ...]]:
    found = []
    for name in columns:
        dictionary = Dictionary.load(str(data / name / "dict.txt"))
        dataset = data_utils.load_indexed_dataset(str(data / name / split), dictionary)
        found.append([dictionary.string(dataset[index]) for index in range(len(dataset))])
    return list(zip(*found, strict=True))


def value_of(line: str) -> int:
    """What Python makes of a list, written as nested calls."""
    functions = {
        "MIN": lambda *values: min(values),
        "MAX": lambda *values: max(values),
        "MED": lambda *values: int(np.median(values)),
        "SM": lambda *values: sum(values) % 10,
    }
    calls = "".join({"[": f"{word[1:]}(", "]": "),"}.get(word[0], f"{word},") for word in line.split())
    (value,) = eval(f"({calls})", functions)
    return value


def depth_and_arguments(line: str) -> tuple[int, set[int]]:
    """How deep the deepest digit is, the list itself being 1, and how many arguments operators have."""
    deepest, open_lists, numbers = 0, [0], set()
    for word in line.split():
        if word == "]":
            numbers.add(open_lists.pop())
            continue
        open_lists[-1] += 1
        deepest = max(deepest, len(open_lists))
        if word[0] == "[":
            open_lists.append(0)
    return deepest, numbers


def test_lists_have_the_published_grammar_and_their_values():
    made = list(islice(listops.rows(3, listops.Lengths(500, 2000)), 100))
    assert all(int(label) == value_of(line) for label, line in made)
    assert {500 <= len(line.split()) <= 2000 for _, line in made} == {True}
    shapes = [depth_and_arguments(line) for _, line in made]
    assert max(depth for depth, _ in shapes) == 10
    assert set.union(*(numbers for _, numbers in shapes)) == set(range(2, 11))
    operators = Counter(word for _, line in made for word in line.split() if word[0] == "[")
    assert operators.keys() == listops.OPERATORS.keys()
    assert all(abs(count / operators.total() - 0.25) < 0.03 for count in operators.values())
    # An argument is an operator once in four, except at the greatest depth.
    arguments = sum(len(line.split()) for _, line in made) - operators.total() - len(made)
    assert 0.15 < (operators.total() - len(made)) / arguments < 0.25


def test_median_of_an_even_number_is_rounded_down():
    assert listops.OPERATORS["[MED"]([1, 2, 5, 6]) == 3
    assert listops.OPERATORS["[MED"]([9, 0, 4]) == 4


def test_listops_data_has_no_list_twice_and_depends_on_the_seed_alone(tmp_path, capsys):
    for name, seed in (("one", 7), ("again", 7), ("other", 8)):
        assert prepare("listops", tmp_path / name, *SHORT, "--seed", seed) == 0
    assert "examples/lra/train.sh listops luna_128" in capsys.readouterr().out
    one, again, other = ({s: read_back(tmp_path / name, s) for s in SPLITS} for name in ("one", "again", "other"))
    assert one == again
    assert one != other
    lists = [line for split in SPLITS for _, line in one[split]]
    assert [len(one[split]) for split in SPLITS] == [60, 10, 20]
    assert len(set(lists)) == len(lists) == 90
    assert all(10 <= len(line.split()) <= 40 and value_of(line) == int(label) for label, line in one["train"])


def joins_the_dots(picture: np.ndarray) -> bool:
    """Whether the bright dots belong together if lit pixels do that are less than three pixels apart."""
    lit = [(int(row), int(column)) for row, column in zip(*np.nonzero(picture >= 40), strict=True)]
    bright = [place for place in lit if picture[place] >= 230]
    reached, waiting = {bright[0]}, deque(bright[:1])
    while waiting:
        place = waiting.popleft()
        near = {other for other in lit if math.dist(place, other) < 3} - reached
        reached |= near
        waiting.extend(near)
    return set(bright) <= reached


def test_pictures_have_the_labels_that_can_be_seen():
    draw = random.Random(11)
    plans = [pathfinder.layout(draw) for _ in range(15)]
    for plan in plans:
        pictures = [pathfinder.drawn(plan, label) for label in (0, 1)]
        assert [joins_the_dots(picture) for picture in pictures] == [False, True]
        assert pictures[0].shape == (32, 32)
        assert all(picture.max() == 255 and 0 < np.count_nonzero(picture) < 512 for picture in pictures)
    # Neither their distance nor the amount of ink tells the label.
    apart, joined = (mean(math.dist(*plan.dots[label]) for plan in plans) for label in (0, 1))
    assert abs(apart - joined) < 1
    ink = [mean(float(pathfinder.drawn(plan, label).mean()) for plan in plans) for label in (0, 1)]
    assert abs(ink[0] - ink[1]) < 1


def test_pathfinder_data_is_balanced_and_depends_on_the_seed_alone(tmp_path, monkeypatch):
    monkeypatch.setattr(pathfinder, "_AT_ONCE", 4)
    for name, seed in (("one", 1), ("again", 1), ("other", 2)):
        assert prepare("pathfinder", tmp_path / name, "--examples", 8, 2, 4, "--seed", seed) == 0
    one, again, other = ({s: read_back(tmp_path / name, s) for s in SPLITS} for name in ("one", "again", "other"))
    assert one == again
    assert one != other
    for split, count in zip(SPLITS, (8, 2, 4), strict=True):
        assert Counter(label for label, _ in one[split]) == {"0": count // 2, "1": count // 2}
        assert {len(pixels.split()) for _, pixels in one[split]} == {1024}
    pixels = [pixels for split in SPLITS for _, pixels in one[split]]
    assert len(set(pixels)) == len(pixels)
    # Drawing takes long: it is not repeated for data that is there.
    shutil.rmtree(tmp_path / "one" / "work")
    assert prepare("pathfinder", tmp_path / "one", "--examples", 8, 2, 4) == 0
    assert not (tmp_path / "one" / "work").exists()


def text_of(line: str) -> str:
    return bytes(map(int, line.split())).decode()


def test_text_is_the_bytes_of_the_reviews(tmp_path):
    folder = tmp_path / "reviews"
    folder.mkdir()
    train = [(str(number % 2), f"Café {number}\u2028!") for number in range(12)]
    (folder / "train.tsv").write_text("".join(f"{label}\t{text}\n" for label, text in train), encoding="utf-8")
    (folder / "test.tsv").write_text("1\tlong enough\n", encoding="utf-8")
    assert prepare("text", tmp_path / "out", "--from-dir", folder, "--hold-out", 4, "--length", 12) == 0
    data = tmp_path / "out"
    assert [(label, text_of(line)) for label, line in read_back(data, "train")] == train[:8]
    assert [label for label, _ in read_back(data, "valid")] == [label for label, _ in train[8:]]
    assert [text_of(line) for _, line in read_back(data, "test")] == ["long enough"]
    assert max(len(line.split()) for _, line in read_back(data, "valid")) == 12


def papers(folder: Path, line: str = "") -> Path:
    folder.mkdir()
    for name in ("train", "eval", "test"):
        text = f'1.0\ta\tb\tfirst {name}\tsecond\n0.0\tc\td\t"third\tfourth\n'
        (folder / f"new_aan_pairs.{name}.tsv").write_text(text + line, encoding="utf-8")
    return folder


def test_retrieval_has_both_texts_sorted_by_length(tmp_path, capsys):
    flags = ("--from-dir", papers(tmp_path / "aan"), "--length", 10)
    assert prepare("retrieval", tmp_path / "out", *flags, binarised=True) == 0
    found = read_data(tmp_path / "out" / "bin", "valid", ("label", "input0", "input1"))
    assert [(label, *map(text_of, texts)) for label, *texts in found] == [
        ("0", '"third', "fourth"),
        ("1", "first eval", "second"),
    ]
    command = dry_run(capsys.readouterr().out.splitlines()[-1])
    assert "--projection-length 128 " in command and f"--save-dir {tmp_path}/out/checkpoints " in command


def cifar(folder: Path) -> np.ndarray:
    folder.mkdir()
    records = np.random.default_rng(0).integers(256, size=(6, 2, RECORD)).astype(np.uint8)
    records[:, :, 0] %= 10
    for name, batch in zip([f"data_batch_{number}" for number in range(1, 6)] + ["test_batch"], records, strict=True):
        batch.tofile(folder / f"{name}.bin")
    return records.reshape(12, RECORD)


def test_image_is_grey_row_by_row(tmp_path):
    records = cifar(tmp_path / "cifar")
    assert prepare("image", tmp_path / "out", "--from-dir", tmp_path / "cifar", "--hold-out", 3) == 0
    found = [row for split in SPLITS for row in read_back(tmp_path / "out", split)]
    assert [len(read_back(tmp_path / "out", split)) for split in SPLITS] == [7, 3, 2]
    assert [label for label, _ in found] == [str(record[0]) for record in records]
    red, green, blue = records[0, 1:].reshape(3, 1024).astype(float)
    assert np.abs(np.array(found[0][1].split(), float) - (0.299 * red + 0.587 * green + 0.114 * blue)).max() <= 0.5


@pytest.mark.parametrize(
    ("task", "flags", "said"),
    [
        ("listops", ("--length", 50, 40), "--length [50, 40]"),
        ("listops", ("--length", 2, 9), "--length [2, 9]"),
        ("listops", ("--length", 1900, 2001), "--length: 2001: examples/lra reads at most 2000"),
        ("retrieval", ("--from-dir", "{aan}", "--length", 4001), "--length: 4001: examples/lra reads at most 4000"),
        ("listops", ("--examples", 5, 5, 0), "'0' must be a whole number"),
        ("listops", ("--from-dir", "x"), "unrecognized arguments: --from-dir x"),
        ("chess", (), "invalid choice: 'chess'"),
        ("text", (), "required: --from-dir"),
        ("image", ("--from-dir", "/nowhere"), "--from-dir /nowhere: no such folder"),
        ("image", ("--from-dir", "{aan}"), "lacks data_batch_1.bin"),
        ("image", ("--from-dir", "{cut}"), "test_batch.bin: is not a batch"),
        ("image", ("--from-dir", "{cifar}", "--hold-out", 10), "--hold-out 10: there are 10 training pictures"),
        ("retrieval", ("--from-dir", "{cifar}"), "lacks new_aan_pairs.train.tsv"),
        ("retrieval", ("--from-dir", "{aan}"), "new_aan_pairs.train.tsv, line 3: must be LABEL, two names"),
        ("text", ("--from-dir", "{three}", "--hold-out", 1), "the labels are 0, 1, 2; they must be 0 and 1"),
    ],
)
def test_bad_input_ends_in_one_line_and_nothing_is_written(tmp_path, capsys, task, flags, said):
    papers(tmp_path / "aan", "2.0\te\tf\tfifth\tsixth\n")
    cifar(tmp_path / "cifar")
    cifar(tmp_path / "cut")
    (tmp_path / "cut" / "test_batch.bin").write_bytes(b"\x01" * (RECORD - 1))
    (tmp_path / "three").mkdir()
    for split in ("train", "test"):
        (tmp_path / "three" / f"{split}.tsv").write_text("0\ta\n1\tb\n2\tc\n0\td\n")
    places = {name: tmp_path / name for name in ("aan", "cifar", "cut", "three")}
    assert prepare(task, tmp_path / "out", *(str(value).format(**places) for value in flags)) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert said in line
    assert not (tmp_path / "out").exists()


def test_another_seed_needs_another_folder(tmp_path, capsys):
    assert prepare("listops", tmp_path, *SHORT) == 0
    assert prepare("listops", tmp_path, *SHORT, "--seed", "2") == 2
    assert "was made with seed 1, not 2: use another --out" in capsys.readouterr().err


def test_changed_reviews_need_another_folder(tmp_path, capsys):
    """Reviews in a file each, as published."""
    for number, (split, kind) in enumerate(product(("train", "test"), ("pos", "neg"))):
        folder = tmp_path / "aclImdb" / split / kind
        folder.mkdir(parents=True)
        for name in ("0_9", "1_9"):
            (folder / f"{name}.txt").write_text(f"Review {number}.")
    flags = ("--from-dir", tmp_path / "aclImdb", "--hold-out", 1)
    assert [prepare("text", tmp_path / "out", *flags) for _ in range(2)] == [0, 0]
    (folder / "0_9.txt").write_text("Review 4.")
    assert prepare("text", tmp_path / "out", *flags) == 2
    assert "was made with files" in capsys.readouterr().err
