"""Refusals by commands in a process of their own, where the root logger and ``sys.excepthook`` are the command's."""

import os
import re
import subprocess
import sys

import pytest
import torch

from commands import APOLLO, FAMILIES, USER_DIR, train

pytestmark = pytest.mark.slow

SAID = "/smaller.pt does not fit the model: encoder.packed_embeddings is (3, 16), the model's is (4, 16)"


@pytest.fixture(scope="module")
def smaller(tiny_data, tmp_path_factory):
    """A checkpoint that does not fit."""
    folder = tmp_path_factory.mktemp("refused")
    trained = train(tiny_data, folder, *FAMILIES["luna"], *APOLLO, "--max-update=1", "--disable-validation")
    state, name = torch.load(trained, weights_only=True), "encoder.packed_embeddings"
    torch.save({**state, "model": {**state["model"], name: state["model"][name][:-1]}}, folder / "smaller.pt")
    return folder / "smaller.pt"


def refused(name, *given, folder, **environment):
    ended = subprocess.run(
        [sys.executable, "-m", f"fairseq_cli.{name}", *given],
        **{"cwd": folder, "env": {**os.environ, **environment}, "input": "w1 w2\n", "timeout": 300},
        **{"capture_output": True, "text": True},
    )
    assert ended.returncode == 1
    return ended.stdout + ended.stderr


def own_words(text):
    """What the plugin printed, logged or warned of. Any other line may name a folder called fairseq_luna."""
    return re.findall(rf"^fairseq_luna.*|\| fairseq_luna.*|^{re.escape(USER_DIR)}/.*", text, re.MULTILINE)


def test_a_refusal_is_one_line(tiny_data, smaller, tmp_path):
    """As in tests/compat/test_saving.py, which trains."""
    given = (tiny_data, "--cpu", f"--user-dir={USER_DIR}", "-s=a", "-t=b", f"--path={smaller}")
    printed = refused("interactive", *given, folder=tmp_path)
    assert "Traceback" not in printed
    [line] = own_words(printed)
    assert line.startswith("fairseq_luna: error: ") and SAID in line
    assert list(tmp_path.iterdir()) == []


def test_with_loglevel_debug_the_causes_are_shown(tiny_data, smaller, tmp_path):
    reading = (tiny_data, "--cpu", f"--user-dir={USER_DIR}", f"--path={smaller}")
    printed = refused("generate", *reading, folder=tmp_path, LOGLEVEL="DEBUG")
    assert "RuntimeError: Error(s) in loading state_dict" in printed
    assert "The above exception was the direct cause" in printed
    assert SAID in printed.splitlines()[-1]


def test_errors_of_other_code_keep_their_traceback():
    code = "import fairseq_luna.models; raise RuntimeError('--beam of my own')"
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300)
    assert ended.returncode == 1
    assert "Traceback" in ended.stderr and ended.stderr.splitlines()[-1] == "RuntimeError: --beam of my own"
    assert "fairseq_luna: error" not in ended.stderr
