"""The copy of a checkpoint keeps the contract of fairseq's own."""

import shutil

import pytest
from fairseq import file_io
from fairseq.file_io import PathManager


class IOPath:
    """iopath's path manager: its copy returns whether it succeeded, and logs errors instead of raising them."""

    def __init__(self, works=True):
        self.works = works

    def copy(self, src_path, dst_path, overwrite=False):
        shutil.copyfile(src_path, dst_path)
        return self.works

    def exists(self, path):
        return True


@pytest.fixture
def files(tmp_path):
    (tmp_path / "new").write_text("new")
    (tmp_path / "old").write_text("old")
    return str(tmp_path / "new"), str(tmp_path / "old")


def contents(folder):
    return {path.name: path.read_text() for path in folder.iterdir()}


@pytest.mark.parametrize("manager", [None, IOPath()], ids=["fairseq", "iopath"])
def test_without_overwrite_an_existing_file_is_kept(files, tmp_path, monkeypatch, manager):
    monkeypatch.setattr(file_io, "IOPathManager", manager)
    monkeypatch.setattr(PathManager, "supports_rename", lambda path: True)
    assert not PathManager.copy(*files)
    assert not PathManager.copy(*files, overwrite=False)
    assert contents(tmp_path) == {"new": "new", "old": "old"}


@pytest.mark.parametrize("overwrite", [False, True])
def test_a_new_file_is_written(files, tmp_path, overwrite):
    target = str(tmp_path / "other")
    assert PathManager.copy(files[0], target, overwrite=overwrite) == target
    assert contents(tmp_path) == {"new": "new", "old": "old", "other": "new"}


def test_it_returns_what_fairseqs_copy_returns(files, monkeypatch):
    assert PathManager.copy(*files, overwrite=True) == files[1]  # shutil.copyfile's: the target
    monkeypatch.setattr(file_io, "IOPathManager", IOPath())
    monkeypatch.setattr(PathManager, "supports_rename", lambda path: True)
    assert PathManager.copy(*files, overwrite=True) is True


def test_a_copy_that_reports_failure_replaces_nothing(files, tmp_path, monkeypatch):
    monkeypatch.setattr(file_io, "IOPathManager", IOPath(works=False))
    monkeypatch.setattr(PathManager, "supports_rename", lambda path: True)
    assert PathManager.copy(*files, overwrite=True) is False
    assert contents(tmp_path) == {"new": "new", "old": "old"}
