"""The message if fairseq is missing or does not support this Python, and what works without it."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from fairseq_luna import environment

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


@pytest.fixture
def without_fairseq(tmp_path):
    (tmp_path / "sitecustomize.py").write_text(MISSING)
    return tmp_path


@pytest.fixture
def with_unfit_fairseq(tmp_path):
    """A fairseq that fails as 0.12.2 does from Python 3.11 on."""
    (tmp_path / "fairseq").mkdir()
    (tmp_path / "fairseq" / "__init__.py").write_text("raise ValueError('mutable default')")
    (tmp_path / "fairseq-0.12.2.dist-info").mkdir()
    (tmp_path / "fairseq-0.12.2.dist-info" / "METADATA").write_text("Name: fairseq\nVersion: 0.12.2\n")
    return tmp_path


def test_the_fairseq_of_the_tests_is_found_fit():
    assert environment.fairseq_problem() is None


def test_without_fairseq_the_operations_work(without_fairseq):
    ended = run(without_fairseq, "-c", "import fairseq_luna.ops, fairseq_luna.optim.apollo")
    assert ended.returncode == 0, ended.stderr


@pytest.mark.parametrize("options", [("info",), ("info", "--path"), ("translate", "model")])
def test_without_fairseq_one_line_says_what_to_install(without_fairseq, options):
    ended = run(without_fairseq, "-m", "fairseq_luna", *options)
    assert ended.returncode == 2
    fitting = "fairseq-fixed==" if sys.version_info >= (3, 11) else "fairseq=="
    assert ended.stderr.startswith(f"fairseq-luna {options[0]}: fairseq is not installed: pip install {fitting}")
    assert ended.stdout == "" and len(ended.stderr.splitlines()) == 1


def test_an_unfit_fairseq_is_named_in_one_line(with_unfit_fairseq):
    ended = run(with_unfit_fairseq, "-m", "fairseq_luna", "info")
    assert ended.returncode == 2 and ended.stdout == ""
    (line,) = ended.stderr.splitlines()
    assert (
        line.startswith("fairseq-luna info: fairseq 0.12.2") and "cannot be imported" in line and "pip install" in line
    )
    assert "(ValueError: mutable default)" in line
