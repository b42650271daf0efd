"""A full disk while a checkpoint is written or copied: one line, and the existing checkpoints are complete.

The copy keeps the contract of fairseq's own.
"""

import errno
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from fairseq import checkpoint_utils, file_io
from fairseq.file_io import PathManager

from commands import APOLLO, FAMILIES, USER_DIR, arguments, train
from fairseq_luna.compat import PATCHES, interrupted_saving
from fairseq_luna.usage_error import UsageError
from reliability.refusal import fingerprint

save = checkpoint_utils.torch_persistent_save


@pytest.fixture(autouse=True)
def _at_once(monkeypatch):
    monkeypatch.setattr(interrupted_saving, "PAUSES_S", (0.0, 0.0))


@pytest.fixture
def last(tmp_path):
    """A checkpoint that is there before."""
    save({"model": 1}, str(tmp_path / "checkpoint_last.pt"))
    return tmp_path / "checkpoint_last.pt"


def fill_up(monkeypatch, owner, name, times=10**9):
    """Let the next calls of a function that writes a file write half of it and fail."""
    original, left = getattr(owner, name), [times]

    def half(source, target, *args, **kwargs):
        if left[0] == 0:
            return original(source, target, *args, **kwargs)
        left[0] -= 1
        if hasattr(target, "write"):
            target.write(b"half")
        else:
            Path(target).write_bytes(b"half")
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(owner, name, half)


@pytest.mark.parametrize("function", ["save", "copyfile"])
def test_a_full_disk_costs_no_checkpoint(last, tmp_path, monkeypatch, function):
    new = tmp_path / "new.pt"
    save({"model": 2}, str(new))
    before = fingerprint(tmp_path)
    fill_up(monkeypatch, torch if function == "save" else shutil, function)
    said = r"checkpoint_last.pt could not be written \(.*No space left.*\): free disk space"
    with pytest.raises(UsageError, match=said):
        if function == "save":
            save({"model": 2}, str(last))
        else:
            PathManager.copy(str(new), str(last), overwrite=True)
    assert fingerprint(tmp_path) == before


def test_a_second_attempt_starts_the_file_again(last, monkeypatch):
    fill_up(monkeypatch, torch, "save", times=2)
    save({"model": 2}, str(last))
    assert torch.load(last, weights_only=True) == {"model": 2}


@pytest.mark.parametrize(
    "error",
    [
        PermissionError(errno.EACCES, "Permission denied"),
        OSError(errno.EIO, "Input/output error"),
        RuntimeError("CUDA error: out of memory"),
    ],
    ids=["permission", "disk-broken", "device"],
)
def test_other_errors_while_writing_are_unchanged(last, tmp_path, monkeypatch, error):
    def fail(*_, **__):
        raise error

    monkeypatch.setattr(torch, "save", fail)
    with pytest.raises(type(error), match=str(error.args[-1])):
        save({"model": 2}, str(last))
    assert torch.load(last, weights_only=True) == {"model": 1}
    assert list(tmp_path.iterdir()) == [last]


def iopath(works):
    """iopath's path manager: its copy returns whether it succeeded, and logs errors instead of raising them."""

    def copy(src_path, dst_path, overwrite=False):
        shutil.copyfile(src_path, dst_path)
        return works

    return SimpleNamespace(copy=copy, exists=lambda path: True)


@pytest.mark.parametrize("works", [None, True, False], ids=["fairseq", "iopath", "iopath-fails"])
def test_the_copy_keeps_fairseqs_contract(tmp_path, monkeypatch, works):
    """It overwrites only if it is told to, and returns what fairseq's copy returns."""
    new, old, other = (tmp_path / name for name in ("new", "old", "other"))
    new.write_text("new")
    old.write_text("old")
    monkeypatch.setattr(file_io, "IOPathManager", None)
    assert PathManager.copy(str(new), str(other), overwrite=True) == str(other)
    if works is not None:
        monkeypatch.setattr(file_io, "IOPathManager", iopath(works))
        monkeypatch.setattr(PathManager, "supports_rename", lambda path: True)
    for flags in ({}, {"overwrite": False}):
        assert not PathManager.copy(str(new), str(old), **flags)
        assert old.read_text() == "old"
    expected = str(old) if works is None else works
    assert PathManager.copy(str(new), str(old), overwrite=True) == expected
    found = {path.name: path.read_text() for path in tmp_path.iterdir()}
    assert found == {"new": "new", "old": "old" if works is False else "new", "other": "new"}


def test_a_linked_checkpoint_stays_a_link(tmp_path):
    (tmp_path / "large-disk").mkdir()
    target, link, new = tmp_path / "large-disk" / "last.pt", tmp_path / "checkpoint_last.pt", tmp_path / "new.pt"
    target.write_text("old")
    link.symlink_to(target)
    new.write_text("new")
    assert PathManager.copy(str(new), str(link), overwrite=True)
    assert link.is_symlink() and target.read_text() == "new"
    assert PathManager.copy(str(new), str(new), overwrite=True)  # onto itself
    assert new.read_text() == "new"


def test_the_probe_works_without_a_writable_folder(monkeypatch):
    monkeypatch.setattr(tempfile, "TemporaryDirectory", lambda: tempfile.mkdtemp(dir="/no/such/folder"))
    assert PATCHES["saving"].is_needed()


@pytest.mark.slow
def test_training_on_a_full_disk_ends_in_one_line(tiny_data, tmp_path):
    flags = (*FAMILIES["luna"], *APOLLO)
    size = train(tiny_data, tmp_path, *flags, "--max-update=1").stat().st_size
    before = fingerprint(tmp_path)
    # No file may grow beyond half a checkpoint, which is like a full disk to the process.
    limited = (
        f"import resource, sys; resource.setrlimit(resource.RLIMIT_FSIZE, ({size // 2}, {size // 2}));"
        "sys.path.insert(0, sys.argv.pop(1)); import fairseq_luna.models;"
        "from fairseq_luna.compat import interrupted_saving; interrupted_saving.PAUSES_S = ();"
        "from fairseq_cli.train import cli_main; cli_main()"
    )
    command = [sys.executable, "-c", limited, USER_DIR.removesuffix("fairseq_luna")]
    command += arguments(tiny_data, tmp_path, *flags, "--max-update=2")
    ended = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert ended.returncode == 1
    assert "Traceback" not in ended.stdout + ended.stderr, ended.stderr
    (line,) = (line for line in ended.stderr.splitlines() if ": error: " in line)
    assert "could not be written" in line and str(tmp_path) in line
    assert fingerprint(tmp_path) == before
