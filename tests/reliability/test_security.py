"""No command executes code from a file that it loads, and no code of this package could."""

import ast
import os
import pickle
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


PLACES = {
    "settings": lambda state, payload: {**state, "cfg": {**state["cfg"], "common": payload}},
    "weights": lambda state, payload: {**state, "model": {**state["model"], "encoder.packed_embeddings": payload}},
    "array": lambda state, payload: {**state, "extra_state": {"meter": numpy.array([payload], dtype=object)}},
}
FORMS = {
    "zip": torch.save,
    "legacy": lambda content, file: torch.save(content, file, _use_new_zipfile_serialization=False),
    "pickle": lambda content, file: file.write_bytes(pickle.dumps(content)),
}
LEARNING = (*FAMILIES["luna"], *APOLLO, "--batch-size=8", "--max-update=2", "--save-dir={run}")
WAYS = {
    "generate": ("--gen-subset=valid", "--path={file}"),
    "interactive": ("--source-lang=a", "--target-lang=b", "--path={file}"),
    "validate": ("--task=translation", "--valid-subset=valid", "--batch-size=4", "--path={file}"),
    "train --restore-file": (*LEARNING, "--restore-file={file}"),
    "train --finetune-from-model": (*LEARNING, "--finetune-from-model={file}"),
    "train (resumed)": LEARNING,
}


@pytest.fixture(scope="module")
def trained(tiny_data, tmp_path_factory):
    return train(tiny_data, tmp_path_factory.mktemp("trained"), *FAMILIES["luna"], *APOLLO, "--max-update=1")


@pytest.mark.parametrize(
    ("way", "place", "form"),
    [
        *((way, "settings", "zip") for way in WAYS),
        *(("generate", place, "zip") for place in ("weights", "array")),
        *(("generate", "settings", form) for form in ("legacy", "pickle")),
    ],
)
def test_no_command_runs_a_pickled_function(trained, tiny_data, tmp_path, capsys, way, place, form):
    """Each ends in a line with the file's name."""
    run, touched = tmp_path / "run", tmp_path / "touched"
    file = run / "checkpoint_last.pt" if "resumed" in way else tmp_path / "evil.pt"
    run.mkdir()
    FORMS[form](PLACES[place](torch.load(trained, weights_only=True), Payload(touched)), file)
    fixed = (tiny_data, f"--user-dir={USER_DIR}", "--cpu", "--num-workers=0")
    line = refusal(capsys, way.split()[0], *fixed, *(flag.format(file=file, run=run) for flag in WAYS[way]))
    unread = place == "array" or form == "pickle"  # torch may end before it asks for the function
    assert str(file) in line
    assert "could execute code" in line or (unread and "is not a fairseq checkpoint" in line)
    assert not touched.exists()


def test_pickle_itself_runs_the_payload(tmp_path):
    pickle.loads(pickle.dumps(Payload(tmp_path / "touched")))
    assert (tmp_path / "touched").exists()


@pytest.mark.parametrize("command", ["average", "draw"])
def test_our_own_commands_run_no_payload(command, tiny_data, trained, tmp_path, capsys):
    touched, file, out = tmp_path / "touched", tmp_path / "evil.pt", tmp_path / "out"
    torch.save(PLACES["settings"](torch.load(trained, weights_only=True), Payload(touched)), file)
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
PROBES = {"refused_checkpoints.py"}


def test_files_are_loaded_without_the_code_that_they_may_hold():
    """Other calls that could execute their input, such as eval or a shell, are refused by make lint."""
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
