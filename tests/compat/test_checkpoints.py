"""fairseq's own checkpoints load under torch's weights_only; a stranger's does not, and does not run."""

import argparse
import pickle
from pathlib import Path

import numpy
import pytest
import torch
from fairseq import checkpoint_utils

import tiny_training


class Payload:
    def __init__(self, touched: Path):
        self.touched = touched

    def __reduce__(self):
        return Path.touch, (self.touched,)


class Stranger:
    pass


def test_a_checkpoint_with_namespace_and_bleu_meters_loads(tiny_data, tmp_path):
    # Longer than one epoch: the meters of --eval-bleu reach the checkpoint that follows a validation.
    saved = tiny_training.train_here(tiny_data, tmp_path, "--max-epoch=2", "--eval-bleu")
    models, cfg, _ = checkpoint_utils.load_model_ensemble_and_task([str(saved)])
    assert isinstance(cfg.model, argparse.Namespace)
    assert "_bleu_counts" in saved.read_bytes().decode("latin-1")
    assert len(models) == 1


@pytest.mark.parametrize("array", [numpy.arange(3), numpy.arange(3.0)], ids=["int64", "float64"])
@pytest.mark.parametrize("module", ["numpy.core.multiarray", "numpy._core.multiarray"])
def test_arrays_of_either_numpy_load(array, module, tmp_path):
    file = tmp_path / "array.pt"
    torch.save(array, file, _use_new_zipfile_serialization=False)
    here = type(array).__reduce__(array)[0].__module__
    file.write_bytes(file.read_bytes().replace(f"c{here}\n".encode(), f"c{module}\n".encode()))
    assert numpy.array_equal(torch.load(file), array)


def refusal_of(content: object, file: Path) -> str:
    torch.save({"model": {}, "extra_state": content}, file)
    with pytest.raises(pickle.UnpicklingError) as refusal:
        checkpoint_utils.load_checkpoint_to_cpu(str(file))
    return str(refusal.value)


def test_a_payload_is_refused_and_never_run(tmp_path):
    file, touched = tmp_path / "evil.pt", tmp_path / "touched"
    line = refusal_of(Payload(touched), file)
    assert line.startswith(f"{file} was refused") and "execute code" in line and "\n" not in line
    assert not touched.exists()


def test_the_refusal_names_the_class(tmp_path):
    file = tmp_path / "stranger.pt"
    line = refusal_of(Stranger(), file)
    assert line == (f"{file} was refused: it holds {__name__}.Stranger, and loading that could execute code")
