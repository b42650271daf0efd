"""A training that was finished by --max-update or --max-epoch changes nothing when it is started again."""

import pytest

from commands import TRANSFORMER, train
from reliability.refusal import fingerprint
from small_training import updates

FLAGS = (*TRANSFORMER, "--log-format=json", "--log-interval=1")


# An epoch has eight updates: training ends within one, and at the end of one.
@pytest.mark.parametrize("end", ["--max-update=5", "--max-update=8", "--max-epoch=1"])
def test_a_finished_training_started_again_changes_nothing(tiny_data, tmp_path, caplog, end):
    caplog.set_level("INFO")
    train(tiny_data, tmp_path, *FLAGS, end)
    assert updates(caplog)
    before = fingerprint(tmp_path)
    train(tiny_data, tmp_path, *FLAGS, end)
    assert updates(caplog) == []
    assert fingerprint(tmp_path) == before


def test_a_new_training_from_its_weights_makes_all_updates(tiny_data, tmp_path, caplog):
    caplog.set_level("INFO")
    last = train(tiny_data, tmp_path / "first", *FLAGS, "--max-update=5")
    caplog.clear()
    train(tiny_data, tmp_path / "second", *FLAGS, f"--finetune-from-model={last}", "--max-update=5")
    assert len(updates(caplog)) == 5
