"""No command executes code from a file that it loads, and no code of this package could."""

import ast
import os
import pickle
import shutil
from pathlib import Path

import numpy
import pytest
import torch
from fairseq import checkpoint_utils

import plot_attention
from commands import APOLLO, FAMILIES, USER_DIR, train
from fairseq_luna.__main__ import main as fairseq_luna_main
from reliability.refusal import refusal

ROOT = Path(USER_DIR).parent


class Payload:
    """Its pickle creates the file ``touched`` when it is executed."""

    def __init__(self, touched):
        self.touched = touched

    def __reduce__(self):
        return os.system, (f"touch {self.touched}",)


class Evaluated(Payload):
    def __reduce__(self):
        return eval, (f"__import__('pathlib').Path({str(self.touched)!r}).touch()",)


def in_settings(state, payload):
    return {**state, "cfg": {**state["cfg"], "common": payload}}


def in_weights(state, payload):
    return {**state, "model": {**state["model"], "encoder.packed_embeddings": payload}}


def in_an_array(state, payload):
    return {**state, "extra_state": {**state["extra_state"], "meter": numpy.array([payload], dtype=object)}}


def zipped(content, file):
    torch.save(content, file)


def legacy(content, file):
    torch.save(content, file, _use_new_zipfile_serialization=False)


def plain_pickle(content, file):
    file.write_bytes(pickle.dumps(content))


@pytest.fixture(scope="module")
def trained(tiny_data, tmp_path_factory):
    return train(tiny_data, tmp_path_factory.mktemp("trained"), *FAMILIES["luna"], *APOLLO, "--max-update=1")


@pytest.fixture
def loads(tiny_data, tmp_path, capsys):
    """Loads a checkpoint in each way; each must refuse it in a line with the file's name."""
    fixed = (tiny_data, f"--user-dir={USER_DIR}", "--cpu", "--num-workers=0")
    learning = (*FAMILIES["luna"], *APOLLO, "--batch-size=8", "--max-update=2", f"--save-dir={tmp_path / 'run'}")
    flags = {
        "generate": ("--gen-subset=valid", "--path={}"),
        "interactive": ("--source-lang=a", "--target-lang=b", "--path={}"),
        "validate": ("--task=translation", "--valid-subset=valid", "--batch-size=4", "--path={}"),
        "train --restore-file": (*learning, "--restore-file={}"),
        "train --finetune-from-model": (*learning, "--finetune-from-model={}"),
        "train (resumed)": learning,
    }

    def load(way, file):
        if "resumed" in way:
            file = shutil.copy(file, tmp_path / "run" / "checkpoint_last.pt")
        line = refusal(capsys, way.split()[0], *fixed, *(flag.format(file) for flag in flags[way]))
        assert str(file) in line
        return line

    return load


WAYS = ["interactive", "validate", "train --restore-file", "train --finetune-from-model", "train (resumed)"]


@pytest.mark.parametrize(
    ("way", "write"),
    [*(("generate", form) for form in (zipped, legacy, plain_pickle)), *((way, zipped) for way in WAYS)],
)
def test_no_command_runs_a_pickled_function(trained, loads, tmp_path, way, write):
    touched, file = tmp_path / "touched", tmp_path / "evil.pt"
    (tmp_path / "run").mkdir()
    write(in_settings(torch.load(trained, weights_only=True), Payload(touched)), file)
    line = loads(way, file)
    assert "could execute code" in line or "is not a fairseq checkpoint" in line
    assert not touched.exists()


@pytest.mark.parametrize(("hide", "payload"), [(in_settings, Evaluated), (in_weights, Payload), (in_an_array, Payload)])
def test_a_hidden_payload_is_refused(trained, loads, tmp_path, hide, payload):
    touched, file = tmp_path / "touched", tmp_path / "evil.pt"
    zipped(hide(torch.load(trained, weights_only=True), payload(touched)), file)
    line = loads("generate", file)
    assert "could execute code" in line or (hide is in_an_array and "is not a fairseq checkpoint" in line)
    assert not touched.exists()


def test_pickle_itself_runs_the_payload(tmp_path):
    for number, payload in enumerate((Payload, Evaluated)):
        touched = tmp_path / f"touched-{number}"
        pickle.loads(pickle.dumps(payload(touched)))
        assert touched.exists()


@pytest.mark.parametrize("command", ["average", "draw"])
def test_our_own_commands_run_no_payload(command, tiny_data, trained, tmp_path, capsys):
    touched, file, out = tmp_path / "touched", tmp_path / "evil.pt", tmp_path / "out"
    zipped(in_settings(torch.load(trained, weights_only=True), Payload(touched)), file)
    if command == "average":
        assert fairseq_luna_main(["average", str(trained), str(file), f"--output={out}"]) != 0
    else:
        assert plot_attention.main([str(file), f"--data={tiny_data}", "--source=w1", f"--output={out}.png"]) != 0
    assert "evil.pt" in capsys.readouterr().err
    assert sorted(tmp_path.iterdir()) == [file]


def test_torchscript_is_refused(tmp_path):
    file = tmp_path / "script.pt"
    torch.jit.save(torch.jit.script(torch.nn.Linear(1, 1)), str(file))
    with pytest.raises(RuntimeError, match=r"Cannot use .*weights_only=True.* with TorchScript archives"):
        checkpoint_utils.load_checkpoint_to_cpu(str(file))


# These probes read what they have just written, to see whether torch refuses it.
PROBES = {"checkpoints.py", "broadcast.py"}


def test_files_are_loaded_without_the_code_that_they_may_hold():
    """What else could execute its input, such as eval or a shell, make lint refuses."""
    trusting = set()
    for path in (path for folder in ("fairseq_luna", "scripts", "examples") for path in (ROOT / folder).rglob("*.py")):
        for call in (node for node in ast.walk(ast.parse(path.read_text("utf-8"))) if isinstance(node, ast.Call)):
            given = {keyword.arg: ast.unparse(keyword.value) for keyword in call.keywords}
            if ast.unparse(call.func) == "torch.load" and given.get("weights_only") != "True":
                trusting.add(path.name)
            assert given.get("allow_pickle", "False") == "False", path
    assert trusting == PROBES


def test_no_shell_script_evaluates_its_input():
    scripts = [path for folder in ("scripts", "examples", ".ci") for path in (ROOT / folder).rglob("*.sh")]
    assert [path for path in scripts if "eval " in path.read_text(encoding="utf-8")] == []
