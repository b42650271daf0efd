"""``python -m fairseq_luna``, and the ways of naming the plugin to fairseq's commands."""

import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest

import fairseq_luna.models  # noqa: F401 (registers the models)
from fairseq_luna import __main__ as command
from fairseq_luna import compat

PACKAGE = Path(command.__file__).parent


def test_only_the_path_is_printed(capsys, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["fairseq_luna", "--path"])
    assert command.main() == 0
    assert capsys.readouterr().out == f"{PACKAGE}\n"


def test_the_report_has_the_path_the_versions_and_the_patches(capsys, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["fairseq_luna"])
    assert command.main() == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == f"--user-dir {PACKAGE}"
    assert any(line.split() == ["torch", metadata.version("torch")] for line in lines)
    assert any(line.startswith("fairseq ") and "0.12" in line for line in lines)
    patches = [line for line in lines if line.startswith("patch ")]
    assert ["applied" in line for line in patches] == [result.applied for result in compat.apply_patches()]


def test_registered_names_are_this_packages_own():
    registered = command.registered()
    assert "luna" in registered["architectures"] and "transformer" not in registered["architectures"]
    assert registered["optimizers"] == ["apollo"]
    assert "milestone" in registered["lr schedulers"]


TOOLS = {
    "fairseq-train": ["--arch=luna", "--optimizer=apollo", "--lr-scheduler=milestone", "--batch-size=1"],
    "fairseq-generate": ["--path=no-such-checkpoint"],
}


@pytest.mark.slow
@pytest.mark.parametrize("tool", TOOLS)
@pytest.mark.parametrize("user_dir, folder", [("fairseq_luna", PACKAGE.parent), (str(PACKAGE), Path("/"))])
def test_user_dir_by_relative_and_absolute_path(tool, user_dir, folder):
    command = [
        str(Path(sys.executable).with_name(tool)),
        "no-such-data",
        "--user-dir",
        user_dir,
        *TOOLS[tool],
    ]
    ended = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=300)
    # The data is the first thing that is missed after the plugin is imported and its names are parsed.
    assert "no-such-data" in ended.stderr.splitlines()[-1]
