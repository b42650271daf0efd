"""fairseq's own checkpoints load under torch's weights_only; unknown classes are refused and not executed."""

import argparse
import pickle
from pathlib import Path

import numpy
import pytest
import torch
from fairseq import checkpoint_utils

from commands import TRANSFORMER, train
from fairseq_luna.compat import refused_checkpoints
from fairseq_luna.usage_error import UsageError


class Stranger:
    pass


def test_a_checkpoint_with_namespace_and_bleu_meters_loads(tiny_data, tmp_path):
    # Longer than one epoch: the meters of --eval-bleu reach the checkpoint that follows a validation.
    saved = train(tiny_data, tmp_path, *TRANSFORMER, "--max-epoch=2", "--eval-bleu")
    models, cfg, _ = checkpoint_utils.load_model_ensemble_and_task([str(saved)])
    assert isinstance(cfg.model, argparse.Namespace)
    assert "_bleu_counts" in saved.read_bytes().decode("latin-1")
    assert len(models) == 1


@pytest.mark.parametrize(
    "array", [numpy.arange(3), numpy.arange(3.0), numpy.float64(3)], ids=["int64", "float64", "number"]
)
@pytest.mark.parametrize("module", ["numpy.core.multiarray", "numpy._core.multiarray"])
def test_arrays_of_either_numpy_load(array, module, tmp_path):
    file = tmp_path / "array.pt"
    torch.save(array, file, _use_new_zipfile_serialization=False)
    here = type(array).__reduce__(array)[0].__module__
    file.write_bytes(file.read_bytes().replace(f"c{here}\n".encode(), f"c{module}\n".encode()))
    assert numpy.array_equal(torch.load(file), array)


def test_names_of_another_program_are_said(tiny_data, tmp_path):
    state = torch.load(train(tiny_data, tmp_path, *TRANSFORMER, "--max-update=1"), weights_only=True)
    names, file = {"arch": "transformer", "task": "translation", "optimizer": "adam"}, tmp_path / "theirs.pt"
    for what in names:
        args = argparse.Namespace(**{**names, what: "their_own"}, lr=[0.1])
        torch.save({**state, "cfg": None, "args": args}, file)
        said = f"^{file} was saved by another program: its 'their_own' is not registered"
        with pytest.raises(UsageError, match=said):
            checkpoint_utils.load_checkpoint_to_cpu(str(file))
    torch.save({**state, "cfg": None, "args": None}, file)
    path = train(tiny_data, tmp_path / "on", *TRANSFORMER, "--max-update=2", f"--finetune-from-model={file}")
    assert torch.load(path, weights_only=True)["optimizer_history"][-1]["num_updates"] == 2


@pytest.mark.parametrize(
    ("version", "warns"), [("2.6.0", True), ("2.9.1+cu128", True), ("2.10.0", False), ("3.0.0a0+git1", False)]
)
def test_a_torch_whose_own_check_has_a_fault_is_named_once(version, warns, tmp_path, monkeypatch, caplog):
    file = tmp_path / "empty.pt"
    file.touch()
    monkeypatch.setattr(torch, "__version__", version)
    refused_checkpoints._warn_once_about.cache_clear()
    for _ in range(2):
        with pytest.raises(UsageError, match="is not a fairseq checkpoint or is damaged") as raised:
            checkpoint_utils.load_checkpoint_to_cpu(str(file))
        assert isinstance(raised.value.__cause__, EOFError)
    said = [record.getMessage() for record in caplog.records if "CVE-2026-24747" in record.getMessage()]
    assert len(said) == warns and all(f"torch {version} " in line and "torch 2.10 or later" in line for line in said)
    refused_checkpoints._warn_once_about.cache_clear()


def refusal_of(content: object, file: Path) -> str:
    torch.save({"model": {}, "extra_state": content}, file)
    with pytest.raises(UsageError) as refusal:
        checkpoint_utils.load_checkpoint_to_cpu(str(file))
    assert isinstance(refusal.value.__cause__, pickle.UnpicklingError)
    return str(refusal.value)


def test_the_refusal_names_the_class(tmp_path):
    file = tmp_path / "stranger.pt"
    assert "was refused: it holds numpy.dtype" in refusal_of(numpy.zeros(1, dtype="float32"), file)
    line = refusal_of(Stranger(), file)
    assert line == f"{file} was refused: it holds {__name__}.Stranger, and loading that could execute code"


@pytest.mark.parametrize(
    "error",
    [RuntimeError("can't allocate memory"), KeyError("model"), MemoryError(), OSError(5, "Input/output error")],
    ids=["allocation", "key", "memory", "disk"],
)
def test_other_errors_are_unchanged(tmp_path, monkeypatch, error):
    def load(*_, **__):
        raise error

    file = tmp_path / "checkpoint.pt"
    torch.save({}, file)
    monkeypatch.setattr(torch, "load", load)
    with pytest.raises(type(error)) as raised:
        checkpoint_utils.load_checkpoint_to_cpu(str(file))
    assert raised.value is error
