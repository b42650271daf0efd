"""Trainings with Adam have the checkpoints of fairseq's own functions, bit for bit, and go on from each other's."""

import pytest
import torch
from fairseq.optim.fp16_optimizer import FP16Optimizer

from commands import FAMILIES, arguments, on_processes, train
from fairseq_luna.compat import multi_tensor_adam
from small_training import differing, outcome

ADAM = (
    *FAMILIES["luna"],
    *("--optimizer=adam", "--adam-betas=(0.9, 0.98)", "--weight-decay=0.01", "--lr=0.01", "--clip-norm=0.5"),
    *("--criterion=label_smoothed_cross_entropy", "--label-smoothing=0.1", "--lr-scheduler=inverse_sqrt"),
    *("--warmup-updates=3", "--update-freq=2", "--encoder-layerdrop=0.3"),
)
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
# Plugins for other processes: multi-tensor calls also on a CPU, and an update by fairseq's own functions.
PATCHED = """
import fairseq_luna.models
from fairseq_luna.compat import multi_tensor_adam

multi_tensor_adam.has_multi_tensor_kernels = lambda device: True
"""
UNPATCHED = """
import inspect

import fairseq_luna.models
from fairseq.optim.adam import Adam
from fairseq_luna.compat import multi_tensor_gradients

for owner, name, _ in multi_tensor_gradients.REPLACED:
    setattr(owner, name, getattr(owner, name).__wrapped__)
Adam.step = inspect.unwrap(Adam.step)
"""


def flatten_on_a_cpu(patch):
    """Take fairseq's own function for --fp16, which ours refuses without a CUDA device."""
    flatten = FP16Optimizer.build_fp32_params
    patch.setattr(FP16Optimizer, "build_fp32_params", getattr(flatten, "__wrapped__", flatten))


@pytest.mark.parametrize("flags", PRECISIONS.values(), ids=PRECISIONS)
def test_checkpoints_are_fairseqs(tiny_data, tmp_path, flags, as_on_a_gpu, fairseqs, monkeypatch):
    def to(updates, folder):
        with pytest.MonkeyPatch.context() as patch:
            # What fairseq asks of a GPU where it flattens the parameters, and where a gradient overflows.
            patch.setattr(torch.cuda, "current_device", lambda: None)
            patch.setattr(torch.Tensor, "cuda", lambda tensor: tensor)
            flatten_on_a_cpu(patch)
            train(tiny_data, tmp_path / folder, *ADAM, *flags, f"--max-update={updates}")

    to(3, "ours")
    to(3, "ours-theirs")
    to(6, "ours")
    fairseqs()
    to(6, "ours-theirs")
    to(3, "theirs-ours")
    to(3, "theirs")
    to(6, "theirs")
    monkeypatch.undo()
    monkeypatch.setattr(multi_tensor_adam, "has_multi_tensor_kernels", lambda device: True)
    to(6, "theirs-ours")
    expected = assert_same(tmp_path, "theirs", "ours", "ours-theirs", "theirs-ours")
    assert len(expected) > 100
    if OVERFLOWING[0] in flags:
        assert 0 < expected["/optimizer/loss_scale"] < INIT_SCALE


def assert_same(folder, *runs):
    """The last checkpoints of these runs are the same."""
    first, *others = (outcome(folder / run / "checkpoint_last.pt") for run in runs)
    assert [differing(first, other) for other in others] == [[]] * len(others)
    return first


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["c10d", "legacy_ddp"])
def test_on_several_processes(tiny_data, tmp_path, backend):
    for folder, plugin in {"ours": PATCHED, "theirs": UNPATCHED}.items():
        path = tmp_path / f"plugin_of_{folder}"
        path.mkdir()
        (path / "__init__.py").write_text(plugin)
        given = arguments(tiny_data, tmp_path / folder, *ADAM, "--bf16", f"--ddp-backend={backend}")
        given += [f"--user-dir={path}", "--max-update=3", "--encoder-layerdrop=0"]
        on_processes(2, "train", *given)
    assert_same(tmp_path, "theirs", "ours")
