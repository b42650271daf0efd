"""The command that ``fairseq-luna convert`` prints names the data by a path that is valid from the current folder."""

from pathlib import Path

import pytest

from fairseq_luna.commands.convert import training_data

CFG = {"task": {"data": "data/bin"}, "checkpoint": {"save_dir": "checkpoints"}}


@pytest.fixture
def training(tmp_path):
    """A folder with the checkpoint and the data of a training that ran in it."""
    binary = tmp_path / "training" / "data" / "bin"
    binary.mkdir(parents=True)
    for name in ("dict.en.txt", "dict.de.txt", "train.en-de.en.idx"):
        (binary / name).touch()
    (tmp_path / "training" / "checkpoints").mkdir()
    return tmp_path / "training"


def test_in_the_folder_of_the_training_it_is_as_recorded(training, monkeypatch):
    monkeypatch.chdir(training)
    assert training_data(Path("checkpoints/model.pt"), CFG) == (Path("data/bin"), None)


@pytest.mark.parametrize("place", [".", "checkpoints", "data"])
def test_from_elsewhere_it_is_found_beside_the_checkpoint(training, place, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path if place == "." else training / place)
    data, note = training_data(training / "checkpoints" / "model.pt", CFG)
    assert (data.resolve(), note) == (training / "data" / "bin", None)


def test_dictionaries_beside_the_checkpoint_are_no_data(training, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    moved = tmp_path / "moved"
    moved.mkdir()
    (moved / "dict.en.txt").touch()
    said = f"data/bin is the data folder that {moved / 'model.pt'} records, and is not here: replace it"
    assert training_data(moved / "model.pt", CFG) == ("data/bin", said)


def test_several_folders_and_none(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    several = {"task": {"data": "one:two"}}
    assert training_data(Path("model.pt"), several)[1].startswith("one:two is the data folder that model.pt records")
    Path("one").mkdir()
    Path("two").mkdir()
    assert training_data(Path("model.pt"), several) == ("one:two", None)
    data, note = training_data(Path("model.pt"), {"task": {"_name": "translation"}})
    assert data == "data/bin" and note.startswith("model.pt does not say where its data was")
