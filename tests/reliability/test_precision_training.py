"""Each family, optimizer and precision trains on a CPU, or is refused."""

import pytest
import torch

from commands import APOLLO, FAMILIES, USER_DIR, train
from reliability.refusal import refusal
from tiny_training import trained_weights

ADAM = ("--criterion=label_smoothed_cross_entropy", "--optimizer=adam", "--lr=0.001", "--clip-norm=1")
OPTIMIZERS = {"apollo": APOLLO, "adam": ADAM}
UNFLATTENED = "--fp16 --fp16-no-flatten-grads"
TRAINS = {
    "apollo": ("--bf16", "--memory-efficient-bf16", UNFLATTENED, "--memory-efficient-fp16"),
    "adam": ("--bf16", "--memory-efficient-bf16", UNFLATTENED, "--memory-efficient-fp16", "--amp"),
}
# Precision matters in a family's attention and in an optimizer's steps; for Adam's steps one family is enough.
CASES = [("apollo", family, each) for family in ("luna", "fastformer", "block") for each in TRAINS["apollo"]]
CASES += [("adam", "luna", each) for each in TRAINS["adam"]]


@pytest.mark.parametrize(("optimizer", "family", "precision"), CASES)
def test_trains_two_updates(tiny_data, tmp_path, family, optimizer, precision):
    path = train(
        *(tiny_data, tmp_path, *FAMILIES[family], *OPTIMIZERS[optimizer], *precision.split(), "--max-update=2"),
        *("--disable-validation", "--fp16-init-scale=4"),
    )
    state = torch.load(path, weights_only=True)
    assert state["optimizer_history"][-1]["num_updates"] == 2
    assert all(torch.isfinite(tensor).all() for tensor in trained_weights(path).values())


@pytest.mark.parametrize("flag", ["--amp", "--fp16"])
def test_what_apollo_cannot_use_is_refused_in_one_line(tiny_data, tmp_path, capsys, flag):
    fixed = (
        tiny_data,
        f"--user-dir={USER_DIR}",
        f"--save-dir={tmp_path}",
        "--cpu",
        "--batch-size=8",
        "--num-workers=0",
    )
    line = refusal(capsys, "train", *fixed, *FAMILIES["luna"], *OPTIMIZERS["apollo"], flag, "--max-update=2")
    assert f"--optimizer apollo does not go with {flag}" in line
    assert list(tmp_path.iterdir()) == []
