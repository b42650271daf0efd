"""Apollo and its schedule in fairseq's own training loop."""

import pytest

pytest.importorskip("fairseq")

import torch
from fairseq import checkpoint_utils

from tiny_training import train_here, trained_weights

APOLLO = ("--optimizer=apollo", "--lr-scheduler=milestone", "--warmup-updates=8", "--milestones=10,14")


@pytest.mark.parametrize("precision", [(), ("--memory-efficient-fp16",)], ids=["fp32", "memory_efficient_fp16"])
@pytest.mark.parametrize("clip", [(), ("--apollo-clip-mode=each", "--clip-norm=0.1")], ids=["unclipped", "clip_each"])
def test_resumed_training_is_the_uninterrupted_one(tiny_data, tmp_path, precision, clip):
    flags = (*APOLLO, *precision, *clip)
    straight = train_here(tiny_data, tmp_path / "straight", *flags, "--max-update=16")
    train_here(tiny_data, tmp_path / "resumed", *flags, "--max-update=11")
    resumed = train_here(tiny_data, tmp_path / "resumed", *flags, "--max-update=16")
    ours, theirs = trained_weights(resumed), trained_weights(straight)
    assert ours.keys() == theirs.keys()
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)


def test_checkpoint_holds_rate_and_optimizer(tiny_data, tmp_path):
    checkpoint = train_here(tiny_data, tmp_path, *APOLLO, "--max-update=12")
    state = checkpoint_utils.load_checkpoint_to_cpu(str(checkpoint))
    assert state["optimizer_history"][-1]["optimizer_name"] == "FairseqApollo"
    assert state["last_optimizer_state"]["param_groups"][0]["lr"] == pytest.approx(0.001)
    assert {s["step"] for s in state["last_optimizer_state"]["state"].values()} == {12}
