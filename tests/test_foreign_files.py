"""Files that fairseq-train did not write: every command that reads a model refuses them in one line that names them."""

import json
import pickle
import re
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import fairseq_luna
from fairseq_luna.usage_error import UsageError
from own_command import refused
from recorded import record

DATA = record.HERE / "prepared" / "bin"


def recorded_state():
    return torch.load(record.checkpoint(record.EXPORTED), weights_only=True)


def write_text(path):
    path.write_text("Two dogs run.\n")


def write_archive(path):
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("readme.txt", "text")


def write_truncated(path):
    whole = Path(record.checkpoint(record.EXPORTED)).read_bytes()
    path.write_bytes(whole[: len(whole) // 2])


def write_legacy_truncated(path):
    torch.save({"model": {"w": torch.zeros(1000)}}, path, _use_new_zipfile_serialization=False)
    path.write_bytes(path.read_bytes()[:-1000])


def write_safetensors(path):
    """A header of JSON after its length in 8 bytes, and the data."""
    header = json.dumps({"w": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}}).encode()
    path.write_bytes(len(header).to_bytes(8, "little") + header + bytes(8))


def write_pickle(path):
    path.write_bytes(pickle.dumps({"model": {"w": [1.0, 2.0]}, "args": None}))


def write_code(path):
    class Harmful:
        def __reduce__(self):
            return print, ("this code was run",)

    path.write_bytes(pickle.dumps(Harmful()))


def write_numpy(path):
    with path.open("wb") as file:
        np.save(file, np.zeros(3))


def write_numpy_archive(path):
    with path.open("wb") as file:
        np.savez(file, w=np.zeros(3))


def write_script(path):
    torch.jit.script(nn.Linear(2, 2)).save(str(path))


def write_module(path):
    torch.save(nn.Linear(2, 2), path)


def write_lightning(path):
    torch.save({"epoch": 1, "state_dict": nn.Linear(2, 2).state_dict(), "optimizer_states": []}, path)


def write_hugging_face(path):
    torch.save({f"model.encoder.layers.0.{name}": x for name, x in nn.Linear(2, 2).state_dict().items()}, path)


FILES = {
    "text": write_text,
    "empty": Path.touch,
    "zip": write_archive,
    "bytes": lambda path: path.write_bytes(bytes(range(256)) * 40),
    "zeros": lambda path: path.write_bytes(bytes(4096)),
    "gzip": lambda path: path.write_bytes(b"\x1f\x8b\x08\x00" + bytes(40)),
    "json": lambda path: path.write_text('{"model": {"w": [1.0]}}'),
    "truncated": write_truncated,
    "legacy-truncated": write_legacy_truncated,
    "safetensors": write_safetensors,
    "pickle": write_pickle,
    "code": write_code,
    "numpy": write_numpy,
    "numpy-archive": write_numpy_archive,
    "torchscript": write_script,
    "module": write_module,
    "tensor": lambda path: torch.save(torch.zeros(2), path),
    "list": lambda path: torch.save([torch.zeros(2)], path),
    "state-dict": lambda path: torch.save(recorded_state()["model"], path),
    "lightning": write_lightning,
    "hugging-face": write_hugging_face,
    "empty-dict": lambda path: torch.save({}, path),
    "model-of-numbers": lambda path: torch.save({**recorded_state(), "model": {"w": 1.0}}, path),
    "no-settings": lambda path: torch.save({"model": recorded_state()["model"]}, path),
    "cfg-is-text": lambda path: torch.save({**recorded_state(), "cfg": "none"}, path),
    "directory": Path.mkdir,
}
# Files that torch itself can read: there is no exception behind the refusal.
READABLE = {"directory", "state-dict", "lightning", "hugging-face", "empty-dict", "model-of-numbers"}
READABLE |= {"no-settings", "cfg-is-text"}
COMMANDS = (
    ("translate", "{file}", "--data", "{data}"),
    ("average", "{file}", "--output", "{output}"),
    ("convert", "{file}", "--arch=mixed_tiny", "--output", "{output}"),
    ("export", "{file}", "--data", "{data}", "--output", "{output}"),
    ("score", "{file}", "--reference", "{reference}"),
)


@pytest.mark.parametrize("kind", FILES)
def test_it_is_refused_in_one_line_that_names_it(kind, tmp_path, capsys):
    file, output, reference = tmp_path / "model.pt", tmp_path / "output", tmp_path / "reference.de"
    reference.write_text("Zwei Hunde laufen.\nEin Hund.\n")
    FILES[kind](file)
    with pytest.raises(UsageError, match=re.escape(str(file))) as refusal:
        fairseq_luna.load(file, data=DATA)
    assert "\n" not in str(refusal.value)
    assert (refusal.value.__cause__ is not None) or kind in READABLE
    for command, *arguments in COMMANDS:
        places = {"file": file, "output": output, "reference": reference, "data": DATA}
        assert str(file) in refused(capsys, command, *(word.format(**places) for word in arguments))
        assert not output.exists()
