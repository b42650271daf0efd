"""Refusals by commands in a process of their own, where the root logger and ``sys.excepthook`` are the command's."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from commands import APOLLO, FAMILIES, USER_DIR, train

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def files(tiny_data, tmp_path_factory):
    folder = tmp_path_factory.mktemp("refused")
    trained = train(tiny_data, folder, *FAMILIES["luna"], *APOLLO, "--max-update=1", "--disable-validation")
    state = torch.load(trained, weights_only=True)
    name = "encoder.packed_embeddings"
    torch.save({**state, "model": {**state["model"], name: state["model"][name][:-1]}}, folder / "smaller.pt")
    (folder / "cut.pt").write_bytes(trained.read_bytes()[:1000])
    return folder


def command(name, *arguments, folder, **environment):
    return subprocess.run(
        [sys.executable, "-m", f"fairseq_cli.{name}", *map(str, arguments)],
        cwd=folder,
        env={**os.environ, **environment},
        input="w1 w2\n",
        capture_output=True,
        text=True,
        timeout=300,
    )


TRAINING = (*FAMILIES["luna"], *APOLLO, "--cpu", "--batch-size=8", "--max-update=2", "--num-workers=0")
READING = ("--cpu", f"--user-dir={USER_DIR}")
PAIR = ("--source-lang=a", "--target-lang=b")
REFUSALS = {
    "train": ("train", *TRAINING, "--projection-length=0"),
    "train-restore": ("train", *TRAINING, "--restore-file={folder}/smaller.pt"),
    "train-finetune": ("train", *TRAINING, "--finetune-from-model={folder}/smaller.pt"),
    "generate": ("generate", *READING, "--path={folder}/smaller.pt"),
    "interactive": ("interactive", *READING, *PAIR, "--path={folder}/smaller.pt"),
    "eval_lm": ("eval_lm", *READING, "--task=translation", "--path={folder}/cut.pt"),
    "validate": ("validate", *READING, "--task=translation", "--batch-size=4", "--path={folder}/cut.pt"),
}
SAID = {
    "smaller.pt": "/smaller.pt does not fit the model: encoder.packed_embeddings is (3, 16), the model's is (4, 16)",
    "cut.pt": "/cut.pt is not a fairseq checkpoint or is damaged",
    "length=0": "--projection-length 0: must be 1 or more",
}


def own_words(text):
    """What the plugin printed, logged or warned of. Any other line may name a folder called fairseq_luna."""
    return re.findall(rf"^fairseq_luna.*|\| fairseq_luna.*|^{re.escape(USER_DIR)}/.*", text, re.MULTILINE)


@pytest.mark.parametrize("name", REFUSALS)
def test_a_refusal_is_one_line(tiny_data, files, tmp_path, name):
    program, *flags = (flag.format(folder=files) for flag in REFUSALS[name])
    flags += [f"--user-dir={USER_DIR}", f"--save-dir={tmp_path}"] if program == "train" else []
    ended = command(program, tiny_data, *flags, folder=tmp_path)
    assert ended.returncode == 1
    assert "Traceback" not in ended.stdout + ended.stderr, ended.stderr
    (line,) = (line for line in ended.stderr.splitlines() if line.startswith("fairseq_luna: error: "))
    assert any(said in line for given, said in SAID.items() if any(flag.endswith(given) for flag in flags))
    assert own_words(ended.stderr) == [line]
    assert not Path(tmp_path / "checkpoint_last.pt").exists()


def test_with_loglevel_debug_the_causes_are_shown(tiny_data, files, tmp_path):
    ended = command("generate", tiny_data, *READING, f"--path={files}/smaller.pt", folder=tmp_path, LOGLEVEL="DEBUG")
    assert ended.returncode == 1
    assert "RuntimeError: Error(s) in loading state_dict" in ended.stderr
    assert "The above exception was the direct cause" in ended.stderr
    assert SAID["smaller.pt"] in ended.stderr.splitlines()[-1]


def test_errors_of_other_code_keep_their_traceback(tmp_path):
    code = "import fairseq_luna.models; raise RuntimeError('--beam of my own')"
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300)
    assert ended.returncode == 1
    assert "Traceback" in ended.stderr and ended.stderr.splitlines()[-1] == "RuntimeError: --beam of my own"
    assert "fairseq_luna: error" not in ended.stderr


def test_a_restore_file_that_does_not_exist_is_fairseqs_warning(tiny_data, tmp_path):
    train(tiny_data, tmp_path, *FAMILIES["luna"], *APOLLO, "--max-update=1", "--restore-file=no-such.pt")
    assert (tmp_path / "checkpoint_last.pt").exists()
