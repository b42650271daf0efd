"""A training that was finished by --max-update or --max-epoch changes nothing when it is started again."""

import json

import pytest

import tiny_training
from reliability.refusal import fingerprint


def updates(caplog):
    found = [json.loads(record.message)["num_updates"] for record in caplog.records if record.name == "train_inner"]
    caplog.clear()
    return found


# An epoch has eight updates: training ends within one, and at the end of one.
@pytest.mark.parametrize("end", ["--max-update=5", "--max-update=8", "--max-epoch=1"])
def test_a_finished_training_started_again_changes_nothing(tiny_data, tmp_path, caplog, end):
    caplog.set_level("INFO")
    logging = ("--log-format=json", "--log-interval=1")
    tiny_training.train_here(tiny_data, tmp_path, *logging, end)
    assert updates(caplog)
    before = fingerprint(tmp_path)
    tiny_training.train_here(tiny_data, tmp_path, *logging, end)
    assert updates(caplog) == []
    assert fingerprint(tmp_path) == before


def test_with_a_larger_max_update_training_continues(tiny_data, tmp_path, caplog):
    caplog.set_level("INFO")
    for end in (5, 7):
        tiny_training.train_here(tiny_data, tmp_path, f"--max-update={end}", "--log-format=json", "--log-interval=1")
    assert updates(caplog) == [str(update + 1) for update in range(7)]


def test_a_new_training_from_its_weights_makes_all_updates(tiny_data, tmp_path, caplog):
    caplog.set_level("INFO")
    last = tiny_training.train_here(tiny_data, tmp_path / "first", "--max-update=5")
    again = (f"--finetune-from-model={last}", "--max-update=5", "--log-format=json", "--log-interval=1")
    tiny_training.train_here(tiny_data, tmp_path / "second", *again)
    assert len(updates(caplog)) == 5
