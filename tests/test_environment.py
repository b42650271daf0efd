"""The message if fairseq is missing or does not support this Python, and what works without it."""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]

# Python imports a sitecustomize from its path before anything else.
MISSING = """
import importlib.machinery, importlib.metadata

found, version = importlib.machinery.PathFinder.find_spec, importlib.metadata.version

def find_spec(name, path=None, target=None):
    return None if name.split(".")[0] == "fairseq" else found(name, path, target)

def version_of_others(name):
    if name.startswith("fairseq"):
        raise importlib.metadata.PackageNotFoundError(name)
    return version(name)

importlib.machinery.PathFinder.find_spec = find_spec
importlib.metadata.version = version_of_others
"""


def run(site: Path, *args: str) -> subprocess.CompletedProcess:
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(site), str(ROOT)])}
    command = [sys.executable, *args]
    return subprocess.run(command, env=env, cwd=site, capture_output=True, text=True, timeout=300)


def test_without_fairseq_one_line_says_what_to_install(tmp_path):
    (tmp_path / "sitecustomize.py").write_text(MISSING)
    (tmp_path / "model.pt").touch()
    ended = run(tmp_path, "-m", "fairseq_luna", "translate", "model.pt")
    fitting = "fairseq-fixed==" if sys.version_info >= (3, 11) else "fairseq=="
    assert ended.returncode == 2 and ended.stdout == ""
    [line] = ended.stderr.splitlines()
    assert line.startswith(f"fairseq-luna translate: fairseq is not installed: pip install {fitting}")
    ended = run(tmp_path, "-c", "import fairseq_luna.models")
    last = ended.stderr.splitlines()[-1]
    assert ended.returncode == 1 and "ImportError: fairseq" in last and "pip install" in last


def test_an_unfit_fairseq_is_named_in_one_line(tmp_path):
    """One that fails as 0.12.2 does from Python 3.11 on."""
    (tmp_path / "fairseq").mkdir()
    (tmp_path / "fairseq" / "__init__.py").write_text("raise ValueError('mutable default')")
    (tmp_path / "fairseq-0.12.2.dist-info").mkdir()
    (tmp_path / "fairseq-0.12.2.dist-info" / "METADATA").write_text("Name: fairseq\nVersion: 0.12.2\n")
    ended = run(tmp_path, "-m", "fairseq_luna", "info")
    assert ended.returncode == 2 and ended.stdout == ""
    [line] = ended.stderr.splitlines()
    assert line.startswith("fairseq-luna info: fairseq 0.12.2") and "(ValueError: mutable default)" in line
    assert "cannot be imported" in line and "pip install" in line
