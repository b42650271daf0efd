"""Trainings whose steps are recorded equal eager ones; operators are repeated as a CUDA graph repeats them."""

import logging

import pytest
import torch
from fairseq.optim.fp16_optimizer import FP16Optimizer

import operator_tape
from commands import APOLLO, FAMILIES, TRANSFORMER, train
from fairseq_luna.recorded_training import RecordedTraining, trainer
from small_training import differing, outcome, updates

ADAM = (
    *("--criterion=label_smoothed_cross_entropy", "--label-smoothing=0.1", "--clip-norm=0.5"),
    *("--optimizer=adam", "--adam-betas=(0.9, 0.98)", "--weight-decay=0.01", "--lr=0.01"),
    *("--lr-scheduler=inverse_sqrt", "--warmup-updates=3"),
)
# Shapes of which some come again and some do not.
FIXED = (
    *("--dropout=0", "--attention-dropout=0", "--activation-dropout=0", "--log-format=json", "--log-interval=1"),
    *("--batch-size=4", "--max-tokens=40", "--num-batch-buckets=3", "--update-freq=2"),
)
INIT_SCALE = 2.0**17
CHUNKED = ("--criterion=label_smoothed_cross_entropy_chunked", "--label-smoothing=0.1")
LUNA = FAMILIES["luna"]
TRAININGS = {
    "adam": (*LUNA, *ADAM),
    "chunked-loss": (*LUNA, *ADAM, *CHUNKED),
    "sentences": (*FAMILIES["fastformer"], *ADAM, "--sentence-avg"),
    "cross-entropy": (*FAMILIES["mixed"], *ADAM[2:], "--criterion=cross_entropy"),
    "bf16": (*LUNA, *ADAM, "--bf16"),
    "apollo-bf16": (*LUNA, *APOLLO, "--bf16"),
    "fp16": (*LUNA, *ADAM, "--fp16", "--fp16-no-flatten-grads", f"--fp16-init-scale={INIT_SCALE:.0f}"),
    "flattened-fp16": (*LUNA, *ADAM, "--fp16", f"--fp16-init-scale={INIT_SCALE:.0f}"),
    "memory-efficient-fp16": (*LUNA, *ADAM, "--memory-efficient-fp16", f"--fp16-init-scale={INIT_SCALE:.0f}"),
    "amp": (*LUNA, *ADAM, "--amp"),
    "transformer": (*TRANSFORMER, *ADAM),
}


@pytest.fixture
def recording(monkeypatch):
    """Record on the CPU, and note what was computed how."""
    steps = []
    report = RecordedTraining.report

    def noting(self, *, replayed):
        steps.append("replayed" if replayed else "eager")
        report(self, replayed=replayed)

    monkeypatch.setattr(RecordedTraining, "report", noting)
    monkeypatch.setattr(trainer, "recording_on", lambda device: operator_tape.record)
    return steps


@pytest.fixture
def half_precision(monkeypatch):
    """What fairseq asks of a GPU where it flattens the parameters, and where a gradient overflows."""
    monkeypatch.setattr(torch.cuda, "current_device", lambda: None)
    monkeypatch.setattr(torch.Tensor, "cuda", lambda tensor: tensor)
    flatten = FP16Optimizer.build_fp32_params
    monkeypatch.setattr(FP16Optimizer, "build_fp32_params", getattr(flatten, "__wrapped__", flatten))


def assert_same(ours, theirs):
    expected = outcome(theirs)
    assert len(expected) > 50
    assert differing(outcome(ours), expected) == []


@pytest.mark.parametrize("flags", TRAININGS.values(), ids=TRAININGS)
def test_checkpoints_are_those_of_eager_trainings(flags, tiny_data, tmp_path, recording, half_precision, caplog):
    caplog.set_level(logging.INFO)
    given = (*flags, *FIXED, "--max-update=14")
    eager = train(tiny_data, tmp_path / "eager", *given)
    expected = updates(caplog)
    assert recording == []
    recorded = train(tiny_data, tmp_path / "recorded", *given, "--record-training")
    assert [r for r in caplog.records if "--record-training" in r.message and r.levelname == "WARNING"] == []
    assert updates(caplog) == expected
    assert len(expected) >= 12
    assert recording.count("replayed") > 10
    assert_same(recorded, eager)
