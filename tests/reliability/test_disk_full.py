"""A full disk while a checkpoint is written: one line, and the existing checkpoints are complete."""

import errno
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
import torch
from fairseq import checkpoint_utils
from fairseq.file_io import PathManager

from commands import APOLLO, FAMILIES, USER_DIR, train
from fairseq_luna.compat import saving
from fairseq_luna.usage_error import UsageError
from reliability.refusal import fingerprint


@pytest.fixture
def at_once(monkeypatch):
    monkeypatch.setattr(saving, "PAUSES_S", (0.0, 0.0))


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


def test_writing_costs_no_checkpoint(tmp_path, monkeypatch, at_once):
    file = tmp_path / "checkpoint_last.pt"
    checkpoint_utils.torch_persistent_save({"model": 1}, str(file))
    before = fingerprint(tmp_path)
    fill_up(monkeypatch, torch, "save")
    with pytest.raises(
        UsageError, match=r"checkpoint_last.pt could not be written \(.*No space left.*\): free disk space"
    ):
        checkpoint_utils.torch_persistent_save({"model": 2}, str(file))
    assert fingerprint(tmp_path) == before


def test_copying_costs_no_checkpoint(tiny_data, tmp_path, monkeypatch):
    flags = (tiny_data, tmp_path, *FAMILIES["luna"], *APOLLO)
    train(*flags, "--max-update=1")
    before = fingerprint(tmp_path)
    assert before["checkpoint_best.pt"] == before["checkpoint_last.pt"]
    fill_up(monkeypatch, shutil, "copyfile")
    with pytest.raises(UsageError, match=r"checkpoint_last.pt could not be written"):
        train(*flags, "--max-update=2")
    after = fingerprint(tmp_path)
    assert after["checkpoint_last.pt"] == before["checkpoint_last.pt"]
    assert not [name for name in after if name.endswith(".tmp")]
    monkeypatch.undo()
    train(*flags, "--max-update=2")
    assert fingerprint(tmp_path)["checkpoint_last.pt"] != before["checkpoint_last.pt"]


def test_a_second_attempt_starts_the_file_again(tmp_path, monkeypatch, at_once):
    file = tmp_path / "checkpoint_last.pt"
    fill_up(monkeypatch, torch, "save", times=2)
    checkpoint_utils.torch_persistent_save({"model": 2}, str(file))
    assert torch.load(file, weights_only=True) == {"model": 2}


@pytest.mark.parametrize(
    "error",
    [PermissionError(errno.EACCES, "Permission denied"), OSError(errno.EIO, "Input/output error"),
     RuntimeError("CUDA error: out of memory")],
    ids=["permission", "disk-broken", "device"],
)  # fmt: skip
def test_other_errors_while_writing_are_unchanged(tmp_path, monkeypatch, at_once, error):
    file = tmp_path / "checkpoint_last.pt"
    checkpoint_utils.torch_persistent_save({"model": 1}, str(file))

    def fail(*_, **__):
        raise error

    monkeypatch.setattr(torch, "save", fail)
    with pytest.raises(type(error), match=str(error.args[-1])):
        checkpoint_utils.torch_persistent_save({"model": 2}, str(file))
    assert torch.load(file, weights_only=True) == {"model": 1}
    assert list(tmp_path.iterdir()) == [file]


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
    assert saving.is_needed()


@pytest.mark.slow
def test_training_on_a_full_disk_ends_in_one_line(tiny_data, tmp_path):
    flags = (tiny_data, tmp_path, *FAMILIES["luna"], *APOLLO)
    size = train(*flags, "--max-update=1").stat().st_size
    before = fingerprint(tmp_path)
    # No file may grow beyond half a checkpoint, which is like a full disk to the process.
    limited = (
        f"import resource, sys; resource.setrlimit(resource.RLIMIT_FSIZE, ({size // 2}, {size // 2}));"
        "sys.path.insert(0, sys.argv.pop(1)); from fairseq_luna.compat import saving; saving.PAUSES_S = ();"
        "from fairseq_cli.train import cli_main; cli_main()"
    )
    ended = subprocess.run(
        [
            *(
                sys.executable,
                "-c",
                limited,
                USER_DIR.removesuffix("fairseq_luna"),
                tiny_data,
                f"--user-dir={USER_DIR}",
            ),
            *(f"--save-dir={tmp_path}", "--cpu", "--num-workers=0", "--batch-size=8", "--max-update=2"),
            *("--no-epoch-checkpoints", "--data-buffer-size=0", *FAMILIES["luna"], *APOLLO),
        ],
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert ended.returncode == 1
    assert "Traceback" not in ended.stdout + ended.stderr, ended.stderr
    (line,) = (line for line in ended.stderr.splitlines() if ": error: " in line)
    assert "could not be written" in line and str(tmp_path) in line
    assert fingerprint(tmp_path) == before
