"""Checkpoints without the history of their training are read everywhere; older ones are read as fairseq reads them."""

import pytest
import torch
from fairseq import checkpoint_utils

import fairseq_luna
from commands import APOLLO, FAMILIES, generate, train
from fairseq_luna.usage_error import UsageError
from own_command import shown

SHORT = (*FAMILIES["mixed"], *APOLLO, "--max-update=3", "--disable-validation")
# What a checkpoint has of these; names without a value are missing.
SMALL = {
    "missing": {},
    "empty": {"optimizer_history": [], "extra_state": {}},
    "none": {"optimizer_history": None, "extra_state": None, "last_optimizer_state": None},
    "part": {"optimizer_history": [{"num_updates": 7}], "extra_state": {"train_iterator": None}},
    "empty-entry": {"optimizer_history": [{}], "extra_state": {"best": 3.0}},
}
HISTORY = ("optimizer_history", "extra_state", "last_optimizer_state")
KINDS = pytest.mark.parametrize("kind", SMALL)


@pytest.fixture(scope="module")
def trained(tiny_data, tmp_path_factory):
    return train(tiny_data, tmp_path_factory.mktemp("whole"), *SHORT)


@pytest.fixture
def small(trained, tmp_path, kind):
    """The model of a checkpoint with as much history as ``kind`` says."""
    state = torch.load(trained, weights_only=True)
    kept = {name: value for name, value in state.items() if name not in HISTORY}
    torch.save({**kept, **SMALL[kind]}, tmp_path / "small.pt")
    return tmp_path / "small.pt"


def updates(path):
    return torch.load(path, weights_only=True)["optimizer_history"][-1]["num_updates"]


@KINDS
def test_it_is_loaded_and_translates(trained, small, tiny_data, capsys):
    texts = ["w1 w2 w3", "w5 w4"]
    expected, found = (fairseq_luna.load(path, data=tiny_data).translate(texts) for path in (trained, small))
    assert found == expected
    generate(tiny_data, str(small))
    assert capsys.readouterr().out.count("\nH-") + 1 >= 7


@KINDS
def test_training_starts_from_it(trained, small, tiny_data, tmp_path):
    weight = "encoder.embed_tokens.weight"
    before = torch.load(trained, weights_only=True)["model"][weight]
    for start in ("restore-file", "finetune-from-model"):
        path = train(tiny_data, tmp_path / start, *SHORT, f"--{start}={small}", "--max-update=1", "--lr=1e-9")
        assert updates(path) == 1
        torch.testing.assert_close(torch.load(path, weights_only=True)["model"][weight], before, atol=1e-3, rtol=0)
    assert updates(train(tiny_data, tmp_path / "restore-file", *SHORT, "--max-update=2")) == 2


@KINDS
def test_it_is_averaged_and_converted(small, trained, tmp_path, capsys):
    shown(capsys, "average", small, trained, "--output", tmp_path / "mean.pt")
    shown(capsys, "convert", small, "--arch=mixed_tiny", "--output", tmp_path / "start.pt")
    for name in ("mean.pt", "start.pt"):
        found = checkpoint_utils.load_checkpoint_to_cpu(str(tmp_path / name))["model"]
        whole = torch.load(trained, weights_only=True)["model"]
        torch.testing.assert_close(found["encoder.embed_tokens.weight"], whole["encoder.embed_tokens.weight"])


@pytest.mark.parametrize("kind", ["missing"])
def test_a_converted_start_of_it_is_trained(small, tiny_data, tmp_path, capsys):
    shown(capsys, "convert", small, *FAMILIES["mixed"][:4], "--output", tmp_path / "start.pt")
    start = f"--finetune-from-model={tmp_path / 'start.pt'}"
    assert updates(train(tiny_data, tmp_path / "on", *SHORT, start, "--max-update=1")) == 1


@pytest.mark.parametrize("history", [None, []])
def test_an_optimizers_state_without_its_history_needs_a_flag(history, trained, tiny_data, tmp_path):
    file = tmp_path / "small.pt"
    torch.save({**torch.load(trained, weights_only=True), "optimizer_history": history}, file)
    with pytest.raises(UsageError) as raised:
        train(tiny_data, tmp_path / "on", *SHORT, f"--restore-file={file}")
    assert str(raised.value) == (
        f"{file} holds an optimizer's state without the history of its training: give --reset-optimizer"
    )
    flags = ("--reset-optimizer", "--reset-dataloader", "--max-update=1")
    assert updates(train(tiny_data, tmp_path / "on", *SHORT, f"--restore-file={file}", *flags)) == 1


def test_a_checkpoint_from_before_there_was_a_history_keeps_its_state():
    older = {"model": {}, "optimizer": {"state": 1}, "best_loss": 2.0, "epoch": 3, "batch_offset": 4, "val_loss": 5.0}
    state = checkpoint_utils._upgrade_state_dict(older)
    assert state["last_optimizer_state"] == {"state": 1}
    assert state["optimizer_history"][-1]["lr_scheduler_state"] == {"best": 2.0}
    assert state["extra_state"]["train_iterator"] == {"epoch": 3, "iterations_in_epoch": 4}
