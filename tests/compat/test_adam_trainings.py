"""Trainings with Adam end with the checkpoints of fairseq's own functions, bit for bit, and each goes on from the other's."""

import pytest
import torch

from commands import FAMILIES, arguments, torchrun, train
from small_training import differing, outcome

ADAM = (
    *FAMILIES["luna"],
    *("--optimizer=adam", "--adam-betas=(0.9, 0.98)", "--weight-decay=0.01", "--lr=0.01", "--clip-norm=0.5"),
    *("--criterion=label_smoothed_cross_entropy", "--label-smoothing=0.1", "--lr-scheduler=inverse_sqrt"),
    *("--warmup-updates=3", "--update-freq=2", "--encoder-layerdrop=0.3"),
)
VALIDATED_ONCE_MORE = {"/best", "/now/lr_scheduler_state/best"}  # at the stop
INIT_SCALE = 2.0**17
OVERFLOWING = (f"--fp16-init-scale={INIT_SCALE:.0f}",)
PRECISIONS = {
    "fp32": (),
    "bf16": ("--bf16",),
    "fp16": ("--fp16", "--fp16-no-flatten-grads", *OVERFLOWING),
    "flattened-fp16": ("--fp16", *OVERFLOWING),
    "memory-efficient-bf16": ("--memory-efficient-bf16",),
    "memory-efficient-fp16": ("--memory-efficient-fp16", *OVERFLOWING),
}
# A plugin that leaves the update to fairseq, for other processes.
UNPATCHED = """
import inspect

import fairseq_luna.models
from fairseq.optim.adam import Adam
from fairseq_luna.compat import multi_tensor

for owner, name, _ in multi_tensor.REPLACED:
    setattr(owner, name, getattr(owner, name).__wrapped__)
Adam.step = inspect.unwrap(Adam.step)
"""


@pytest.mark.parametrize("flags", PRECISIONS.values(), ids=PRECISIONS)
def test_checkpoints_are_fairseqs(tiny_data, tmp_path, flags, fairseqs, monkeypatch):
    monkeypatch.setattr(torch.cuda, "current_device", lambda: None)  # where fairseq flattens on a CPU

    def end(folder, updates):
        return outcome(train(tiny_data, tmp_path / folder, *ADAM, *flags, f"--max-update={updates}"))

    ours, half = end("ours", 6), end("ours-then-theirs", 3)
    fairseqs()
    theirs, resumed = end("theirs", 6), end("ours-then-theirs", 6)
    assert differing(half, theirs)
    assert differing(ours, theirs) == []
    assert {*differing(resumed, theirs)} <= VALIDATED_ONCE_MORE
    if OVERFLOWING[0] in flags:
        assert 0 < theirs["/optimizer/loss_scale"] < INIT_SCALE


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["c10d", "legacy_ddp"])
def test_on_several_processes(tiny_data, tmp_path, backend):
    (tmp_path / "unpatched").mkdir()
    (tmp_path / "unpatched" / "__init__.py").write_text(UNPATCHED)

    def end(folder, updates, *flags):
        given = arguments(tiny_data, tmp_path / folder, *ADAM, "--bf16", f"--ddp-backend={backend}", *flags)
        torchrun(2, "train", *given, f"--max-update={updates}", "--encoder-layerdrop=0")
        return outcome(tmp_path / folder / "checkpoint_last.pt")

    unpatched = f"--user-dir={tmp_path / 'unpatched'}"
    ours, theirs = end("ours", 4), end("theirs", 4, unpatched)
    end("theirs-then-ours", 3, unpatched)
    assert differing(ours, theirs) == []
    assert {*differing(end("theirs-then-ours", 4), theirs)} <= VALIDATED_ONCE_MORE
