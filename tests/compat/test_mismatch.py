"""Why a checkpoint does not fit reaches the user, with the file's name; other errors are fairseq's."""

from argparse import Namespace
from pathlib import Path
from types import SimpleNamespace

import pytest
from fairseq import checkpoint_utils
from fairseq.trainer import Trainer

from fairseq_luna.compat.mismatch import both_values
from fairseq_luna.usage_error import CheckpointMismatch


def trainer(error):
    """As much of a trainer as loading weights needs; its model raises ``error``."""

    def load_state_dict(*_, **__):
        raise error

    return SimpleNamespace(
        data_parallel_world_size=1,
        data_parallel_rank=0,
        tpu=False,
        is_fsdp=False,
        model=SimpleNamespace(load_state_dict=load_state_dict),
        cfg=SimpleNamespace(
            checkpoint=SimpleNamespace(load_checkpoint_on_all_dp_ranks=False),
            distributed_training=SimpleNamespace(use_sharded_state=False, zero_sharding="none"),
            model=None,
        ),
    )


@pytest.fixture
def file(tmp_path, monkeypatch):
    path = tmp_path / "checkpoint.pt"
    path.touch()
    monkeypatch.setattr(checkpoint_utils, "load_checkpoint_to_cpu", lambda *_, **__: {"model": {}})
    return path


def test_the_trainer_names_file_and_reason(file):
    with pytest.raises(CheckpointMismatch) as raised:
        Trainer.load_checkpoint(trainer(CheckpointMismatch("does not fit: x is (3,)")), str(file))
    assert str(raised.value) == f"{file} does not fit: x is (3,)"
    assert "architectures match" in str(raised.value.__cause__)


@pytest.mark.parametrize("kind", [dict, lambda **values: Namespace(**values)], ids=["config", "namespace"])
def test_both_values_of_the_flags_that_differ_are_said(kind):
    theirs = kind(_name="transformer", encoder_layers=6, width=3, unset=None, dropout=0.1, only=1)
    ours = {"_name": "luna_tiny", "encoder_layers": 4, "width": 3, "unset": 2, "dropout": 0.3, "new": 1}
    assert both_values(theirs, ours) == (
        "; --arch is transformer there and luna_tiny here; --encoder-layers is 6 there and 4 here"
        "; --unset is None there and 2 here"
    )
    assert both_values(None, None) == both_values(theirs, None) == ""


def test_other_errors_of_the_trainer_are_unchanged(file):
    with pytest.raises(Exception, match="please ensure that the architectures match") as raised:
        Trainer.load_checkpoint(trainer(RuntimeError("x")), str(file))
    assert type(raised.value) is Exception


def test_loading_for_generation_names_the_files(tmp_path, monkeypatch):
    def build_model(cfg, from_checkpoint=False):
        return trainer(CheckpointMismatch("does not fit")).model

    paths = [str(tmp_path / name) for name in ("a.pt", "b.pt")]
    for path in paths:
        Path(path).touch()
    state = {"cfg": SimpleNamespace(model=None, task=None), "model": {}, "args": None}
    monkeypatch.setattr(checkpoint_utils, "load_checkpoint_to_cpu", lambda *_, **__: state)
    with pytest.raises(CheckpointMismatch, match="^" + ":".join(paths) + " does not fit$"):
        checkpoint_utils.load_model_ensemble_and_task(paths, task=SimpleNamespace(build_model=build_model))
