"""The flags that differ are said with both values; errors that are no misfit are fairseq's.

tests/reliability/test_bad_input.py reads checkpoints that do not fit.
"""

from argparse import Namespace
from unittest.mock import MagicMock

import pytest
from fairseq import checkpoint_utils
from fairseq.trainer import Trainer

from fairseq_luna.compat.mismatch import both_values


@pytest.mark.parametrize("kind", [dict, lambda **values: Namespace(**values)], ids=["config", "namespace"])
def test_both_values_of_the_flags_that_differ_are_said(kind):
    theirs = kind(_name="transformer", encoder_layers=6, width=3, unset=None, dropout=0.1, only=1)
    ours = {"_name": "luna_tiny", "encoder_layers": 4, "width": 3, "unset": 2, "dropout": 0.3, "new": 1}
    assert both_values(theirs, ours) == (
        "; --arch is transformer there and luna_tiny here; --encoder-layers is 6 there and 4 here"
        "; --unset is None there and 2 here"
    )
    assert both_values(None, None) == both_values(theirs, None) == ""


def test_other_errors_of_the_trainer_are_unchanged(tmp_path, monkeypatch):
    file, trainer = tmp_path / "checkpoint.pt", MagicMock(data_parallel_world_size=1, data_parallel_rank=0)
    file.touch()
    monkeypatch.setattr(checkpoint_utils, "load_checkpoint_to_cpu", lambda *_, **__: {"model": {}})
    trainer.model.load_state_dict.side_effect = RuntimeError("x")
    with pytest.raises(Exception, match="please ensure that the architectures match") as raised:
        Trainer.load_checkpoint(trainer, str(file))
    assert type(raised.value) is Exception
