"""A refusal by a command in a process of its own, where the root logger and ``sys.excepthook`` are the command's."""

import re
import subprocess
import sys

import pytest
import torch

from commands import APOLLO, FAMILIES, USER_DIR, train


@pytest.mark.slow
def test_a_refusal_is_one_line(tiny_data, tmp_path):
    """As in tests/compat/test_saving.py, which trains."""
    flags = (*FAMILIES["luna"], *APOLLO, "--max-update=1", "--disable-validation")
    state, name = torch.load(train(tiny_data, tmp_path / "run", *flags), weights_only=True), "encoder.packed_embeddings"
    torch.save({**state, "model": {**state["model"], name: state["model"][name][:-1]}}, tmp_path / "smaller.pt")
    given = (tiny_data, "--cpu", f"--user-dir={USER_DIR}", "-s=a", "-t=b", f"--path={tmp_path / 'smaller.pt'}")
    command, here = [sys.executable, "-m", "fairseq_cli.interactive", *given], tmp_path / "here"
    here.mkdir()
    ended = subprocess.run(command, cwd=here, input="w1 w2\n", capture_output=True, text=True, timeout=300)
    printed = ended.stdout + ended.stderr
    # What the plugin printed, logged or warned of. Any other line may name a folder called fairseq_luna.
    [line] = re.findall(rf"^fairseq_luna.*|\| fairseq_luna.*|^{re.escape(USER_DIR)}/.*", printed, re.MULTILINE)
    assert ended.returncode == 1 and "Traceback" not in printed
    said = "/smaller.pt does not fit the model: encoder.packed_embeddings is (3, 16), the model's is (4, 16)"
    assert line.startswith("fairseq_luna: error: ") and said in line
    assert list(here.iterdir()) == []
