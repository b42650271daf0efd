"""The flags that differ are said with both values; errors that are no misfit are fairseq's.

tests/reliability/test_bad_input.py reads checkpoints that do not fit.
"""

from argparse import Namespace
from unittest.mock import MagicMock

import pytest
from fairseq import checkpoint_utils
from fairseq.models import ARCH_MODEL_REGISTRY, MODEL_DATACLASS_REGISTRY
from fairseq.trainer import Trainer

from commands import APOLLO, FAMILIES, SIZES, train
from fairseq_luna.compat.checkpoint_mismatch import both_values
from fairseq_luna.model_settings import differing_settings


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


LINEAR = ("--arch=mixed_tiny", "--decoder-self-attention=linear", *SIZES)
# The flags of a training, those of its continuation, and what the warning names; None: there is none.
CONTINUED = {
    "attention": (
        LINEAR,
        (*LINEAR, "--decoder-self-attention=local"),
        "--decoder-self-attention is linear there and local here",
    ),
    "heads": (LINEAR, (*LINEAR, "--decoder-attention-heads=4"), "--decoder-attention-heads is 2 there and 4 here"),
    "window": (
        (*LINEAR, "--decoder-self-attention=local"),
        (*LINEAR, "--decoder-self-attention=local", "--attention-window=3"),
        "--attention-window is None there and 3 here",
    ),
    "family": (
        ("--arch=transformer", *SIZES),
        LINEAR,
        "--arch is transformer there and mixed_tiny here; --decoder-self-attention is softmax there and linear here",
    ),
    "fairseq's-own": (
        ("--arch=transformer", *SIZES),
        ("--arch=transformer", *SIZES, "--activation-fn=gelu"),
        "--activation-fn is relu there and gelu here",
    ),
    "packed-heads": (
        FAMILIES["luna"],
        (*FAMILIES["luna"], "--decoder-projected-attention-heads=8"),
        "--decoder-projected-attention-heads is 2 there and 8 here",
    ),
    "the-same": (LINEAR, LINEAR, None),
    "the-same-luna": (FAMILIES["luna"], (*FAMILIES["luna"], "--encoder-projected-attention-heads=2"), None),
    "the-same-by-another-name": (
        ("--arch=transformer", *SIZES),
        ("--arch=mixed", *SIZES, "--decoder-output-dim=16"),
        None,
    ),
    "training-only": (LINEAR, (*LINEAR, "--dropout=0.4", "--max-source-positions=99", "--alignment-heads=1"), None),
}


def warnings(caplog):
    return [record.getMessage() for record in caplog.records if "trained as another" in record.getMessage()]


@pytest.mark.parametrize(("before", "after", "said"), CONTINUED.values(), ids=CONTINUED)
def test_a_model_of_the_same_tensors_that_is_another_is_loaded_with_a_warning(
    before, after, said, tiny_data, tmp_path, caplog
):
    saved = train(tiny_data, tmp_path, *before, *APOLLO, "--max-update=1", "--disable-validation")
    starts = (f"--finetune-from-model={saved}", f"--restore-file={saved}", f"--save-dir={tmp_path}")
    # The optimizer's state is of parameters in the order of fairseq's classes.
    for start in starts if before[0] == after[0] else starts[:1]:
        caplog.clear()
        train(tiny_data, tmp_path / start[2:9], *after, *APOLLO, "--max-update=1", "--disable-validation", start)
        expected = [f"{saved} fits the model, but was trained as another; {said}"] if said else []
        assert warnings(caplog) == expected


def test_a_setting_of_a_head_counts_if_there_is_one():
    read, mean = {"_name": "luna_roberta", "pooling": "cls"}, {"_name": "luna_roberta", "pooling": "mean"}
    assert differing_settings(read, mean, heads=True) == {"pooling": ("cls", "mean")}
    assert differing_settings(read, mean, heads=False) == {}


@pytest.mark.parametrize("arch", [name for name in ARCH_MODEL_REGISTRY if name in MODEL_DATACLASS_REGISTRY])
def test_no_architecture_differs_from_itself(arch):
    settings = vars(MODEL_DATACLASS_REGISTRY[arch]())
    assert differing_settings({"_name": arch}, {**settings, "_name": arch}) == {}
