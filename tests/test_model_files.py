"""Where a trained model's dictionaries are found, and that wrong paths are refused before torch is imported."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from fairseq_luna.commands import convert
from fairseq_luna.commands.shell_commands import shown_path
from fairseq_luna.files import check_output
from fairseq_luna.model_files import check_file, data_folder
from fairseq_luna.usage_error import UsageError

DICTIONARY = "w1 9\n"


def make_data(folder, content=DICTIONARY):
    folder.mkdir(parents=True)
    for language in "ab":
        (folder / f"dict.{language}.txt").write_text(content, encoding="utf-8")
    return folder


@pytest.fixture
def here(tmp_path, monkeypatch):
    """The current folder, with a training in another one."""
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    return tmp_path / "moved" / "place"


def checkpoint_in(folder):
    folder.mkdir(parents=True)
    return folder / "checkpoint_best.pt"


# Of the checkpoints and of the data in the moved folder, and what the training was told.
MOVED = {
    "beside the checkpoints": ("run/checkpoints", "run/bin", "/gone/other", "/gone/checkpoints"),
    "a relative training's folder": ("exp/x/checkpoints", "data/set/bin", "data/set/bin", "exp/x/checkpoints"),
    "an absolute training's folder": ("exp/checkpoints", "data/bin", "/gone/data/bin", "/gone/exp/checkpoints"),
    "of several parts": ("exp/checkpoints", "data/bin", "data/bin:data/more", "exp/checkpoints"),
    "another save_dir": ("a/b/checkpoints", "data/bin", "data/bin", "/gone/tmp"),
}


@pytest.mark.parametrize(("checkpoints", "data", "told", "saved"), MOVED.values(), ids=MOVED)
def test_dictionaries_are_found_after_a_move(here, checkpoints, data, told, saved):
    checkpoint, folder = checkpoint_in(here / checkpoints), make_data(here / data)
    assert data_folder(checkpoint, told, saved).samefile(folder)
    assert data_folder(Path(os.path.relpath(checkpoint)), told, saved).samefile(folder)


def test_dictionaries_beside_the_checkpoint_come_first(here):
    checkpoint = make_data(here / "run") / "model.pt"
    make_data(here / "bin", "w2 9\n")
    assert data_folder(checkpoint, "bin", "run").samefile(here / "run")


def test_the_trainings_own_absolute_path_is_used_where_it_is(here):
    make_data(here / "bin", "w2 9\n")
    assert data_folder(checkpoint_in(here / "checkpoints"), str(make_data(here / "data")), "checkpoints") is None


def test_a_relative_path_that_means_other_dictionaries_in_the_current_folder_is_refused(here):
    checkpoint = checkpoint_in(here / "checkpoints")
    make_data(here / "bin")
    make_data(Path("bin"))
    assert data_folder(checkpoint, "bin", "checkpoints") is None  # they are the same
    shutil.rmtree("bin")
    make_data(Path("bin"), "w2 9\n")
    with pytest.raises(UsageError, match=r"have other dictionaries; choose with --data"):
        data_folder(checkpoint, "bin", "checkpoints")


def test_nothing_is_found_where_nothing_is(here):
    assert data_folder(checkpoint_in(here / "checkpoints"), "data/bin", "checkpoints") is None
    assert data_folder(here / "checkpoints" / "model.pt", "", "") is None


def test_pipes_and_devices_are_neither_read_nor_replaced(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", Path(os.devnull)):
        with pytest.raises(UsageError, match="is a pipe or a device, and is read more than once"):
            check_file(path, "checkpoint")
        for force in (False, True):
            with pytest.raises(UsageError, match="is a pipe or a device, and would be replaced"):
                check_output(path, [], force=force)
    with pytest.raises(UsageError, match="is a folder; name the checkpoint in it"):
        check_file(tmp_path, "checkpoint")


WRONG = (
    "translate none",
    "translate {file} --data none",
    "translate {file} --pieces none.model",
    "translate {file} --nbest 9",
    "average none --last 2 --output x.pt",
    "average none.pt --output x.pt",
    "average {file} --output none/x.pt",
    "convert none.pt --arch mixed_tiny --output x.pt",
    "convert {file} --arch mixed_tiny --output none/x.pt",
    "export none --output x",
    "export {file} --output x --data none",
    "export {file} --output {file}/x",
    "score none --reference {file}",
    "score {file} --reference none",
    "prepare --train none {file} -s en -t de --hold-out 1",
    "prepare --train {file} {other} -s en -t de --hold-out 1 --out {file}/x",
)
PROBE = """
import json, sys
from fairseq_luna.__main__ import main
for line in json.loads(sys.argv[1]):
    assert main(line.split()) == 2, line
    assert "torch" not in sys.modules, line
"""


def test_wrong_paths_are_refused_before_torch_is_imported(tmp_path):
    files = {name: tmp_path / name for name in ("file", "other")}
    for name, file in files.items():
        file.write_text(f"{name}\n" * 9, encoding="utf-8")
    lines = [line.format(**files) for line in WRONG]
    command = [sys.executable, "-c", PROBE, json.dumps(lines)]
    ended = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert ended.returncode == 0, ended.stderr
    assert len(ended.stderr.splitlines()) == len(WRONG), ended.stderr


def test_values_of_a_models_flags_are_not_taken_for_the_checkpoint(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    convert.check_argv(["--arch", "mixed_tiny", "--decoder-self-attention", "linear", "old.pt", "--output", "new.pt"])
    convert.check_argv(["none.pt", "--arch", "mixed_tiny", "--help"])


def test_a_path_never_looks_like_a_flag(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert shown_path(Path("-out/bin")) == "./-out/bin"
    assert shown_path(Path("out/bin")) == "out/bin"
