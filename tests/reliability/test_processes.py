"""Several processes train like one with gradient accumulation, and every parameter has a gradient."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from fairseq import options, tasks
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from torch import Tensor
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel

from commands import APOLLO, FAMILIES, SIZES, USER_DIR, run
from fairseq_luna.optim.apollo import Apollo
from reliability.refusal import refusal
from shared.small_training import environment, logged
from tiny_training import trained_weights

# Features are drawn again after the second and the fourth update.
PERFORMER = (
    *("--arch=mixed_tiny", "--encoder-self-attention=performer", "--decoder-self-attention=performer"),
    *("--redraw-features=2", *SIZES),
)
# Each process draws its own dropout masks and blocks, so nothing else random is used here.
FIXED = (
    *("--dropout=0", "--attention-dropout=0", "--activation-dropout=0", "--clip-norm=1"),
    *("--batch-size=4", "--num-workers=0", "--cpu", "--no-epoch-checkpoints", "--disable-validation"),
    *("--max-update=5", "--log-format=json", "--log-interval=1"),
)
# Sums of gradients over processes and over batches differ in order. Measured after five updates of Apollo:
# no difference between two processes and one, 1.2e-7 between four and one; ATOL is eight times that.
ATOL = 1e-6
# The losses are logged with three decimals and were the same; the last decimal may be rounded differently.
LOSS_ATOL = 1.1e-3


def arguments(data: str, save_dir: Path, family: str, *more: str) -> list[str]:
    model = (flag for flag in {**FAMILIES, "performer": PERFORMER}[family] if flag != "--random-blocks")
    flags = (*model, *APOLLO, *FIXED, *more)
    return [data, f"--user-dir={USER_DIR}", f"--save-dir={save_dir}", *flags]


def losses(log: str) -> list[float]:
    """The loss of each update."""
    return [float(record["loss"]) for (kind, _), record in logged(log).items() if kind == "train_inner"]


def on_one(caplog, given: list[str]) -> list[float]:
    """Train in this process and return the losses."""
    caplog.set_level("INFO")
    run("train", *given)
    return losses("\n".join(f" | {record.name} | {record.message}" for record in caplog.records))


def on_several(processes: int, given: list[str]) -> list[float]:
    """Train by torchrun's command and return the losses."""
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc_per_node={processes}"]
    train = str(Path(sys.executable).with_name("fairseq-train"))
    ended = subprocess.run(
        [*torchrun, "--no-python", train, *given], capture_output=True, text=True, timeout=900, env=environment()
    )
    assert ended.returncode == 0, ended.stderr[-2000:]
    return losses(ended.stdout + ended.stderr)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("family", "backend", "processes"),
    [("luna", "c10d", 4), ("fastformer", "legacy_ddp", 2), ("block", "pytorch_ddp", 2), ("performer", "c10d", 2)],
)
def test_processes_equal_one_with_update_freq(tiny_data, tmp_path, caplog, family, backend, processes):
    expected = on_one(caplog, arguments(tiny_data, tmp_path / "one", family, f"--update-freq={processes}"))
    several = arguments(tiny_data, tmp_path / "several", family, f"--ddp-backend={backend}")
    found = on_several(processes, several)

    assert len(expected) == 5
    assert found == pytest.approx(expected, abs=LOSS_ATOL)
    weights = trained_weights(tmp_path / "several" / "checkpoint_last.pt")
    wanted = trained_weights(tmp_path / "one" / "checkpoint_last.pt")
    assert weights.keys() == wanted.keys()
    for name, weight in weights.items():
        torch.testing.assert_close(
            weight, wanted[name], rtol=0, atol=ATOL, msg=lambda said, name=name: f"{name}: {said}"
        )


@pytest.fixture
def one_process_group(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "excepthook", sys.excepthook)  # torch puts its own there, and leaves it
    rendezvous = f"file://{tmp_path / 'rendezvous'}"
    torch.distributed.init_process_group("gloo", init_method=rendezvous, rank=0, world_size=1)
    yield
    torch.distributed.destroy_process_group()


def two_backward_passes(model, sample) -> None:
    """The second update fails if a parameter had no gradient in the first."""
    wrapped = DistributedDataParallel(model)
    for _ in range(2):
        logits, _ = wrapped(**sample["net_input"])
        cross_entropy(logits.flatten(0, 1), sample["target"].flatten()).backward()


@pytest.mark.parametrize("family", ["luna", "fastformer", "block"])
def test_torchs_ddp_needs_no_flag_for_unused_parameters(tiny_data, tmp_path, one_process_group, family):
    given = arguments(tiny_data, tmp_path, family)
    cfg = convert_namespace_to_omegaconf(options.parse_args_and_arch(options.get_training_parser(), input_args=given))
    task = tasks.setup_task(cfg.task)
    model = task.build_model(cfg.model)
    task.load_dataset("valid")
    sample = next(task.get_batch_iterator(task.dataset("valid"), max_sentences=4).next_epoch_itr())
    two_backward_passes(model, sample)

    model.nothing_uses_it = torch.nn.Parameter(torch.zeros(1))
    with pytest.raises(RuntimeError, match="finished reduction"):
        two_backward_passes(model, sample)


FULLY_SHARDED = "--ddp-backend=fully_sharded"


@pytest.mark.parametrize(
    ("flags", "named"),
    [
        ((FULLY_SHARDED,), "--ddp-backend fully_sharded"),
        ((FULLY_SHARDED, "--use-sharded-state"), "--ddp-backend fully_sharded"),
        (("--use-sharded-state",), "--use-sharded-state"),
    ],
    ids=["whole-state", "sharded-state", "sharded-state-alone"],
)
def test_split_tensors_are_refused_in_a_line(tiny_data, tmp_path, capsys, monkeypatch, flags, named):
    """Before fairseq imports fairscale, which need not be installed."""
    monkeypatch.setitem(sys.modules, "fairscale", None)
    line = refusal(capsys, "train", *arguments(tiny_data, tmp_path, "luna", *flags))
    assert line.startswith(f"fairseq_luna: error: --optimizer apollo does not go with {named}")
    assert "norms need" in line and "whole: " in line
    assert list(tmp_path.iterdir()) == []


def trained(optimizer: Callable[..., torch.optim.Optimizer], split: Callable[..., list[Tensor]]) -> Tensor:
    """Five updates of a matrix and a vector, in the parts that ``split`` makes of them and of their gradients."""
    draw = torch.Generator().manual_seed(0)
    values = [(torch.randn(8, 4, generator=draw), torch.randn(6, generator=draw)) for _ in range(6)]
    parameters = [torch.nn.Parameter(part.clone()) for part in split(*values[0])]
    updating = optimizer(parameters, lr=1e-3)
    for gradients in values[1:]:
        for parameter, gradient in zip(parameters, split(*gradients), strict=True):
            parameter.grad = gradient.clone()
        updating.step()
    return torch.cat([parameter.detach().flatten() for parameter in parameters])


@pytest.mark.parametrize(
    "split",
    [lambda matrix, vector: [matrix[:4], matrix[4:], vector], lambda *both: [torch.cat([x.flatten() for x in both])]],
    ids=["halves", "flattened"],
)
def test_why_split_tensors_are_refused(split):
    """Adam updates parts of tensors like whole ones; Apollo does not, because its norms are per tensor."""
    whole = {optimizer: trained(optimizer, lambda *both: list(both)) for optimizer in (torch.optim.Adam, Apollo)}
    torch.testing.assert_close(trained(torch.optim.Adam, split), whole[torch.optim.Adam], rtol=0, atol=1e-7)
    assert (trained(Apollo, split) - whole[Apollo]).abs().max() > 1e-3
