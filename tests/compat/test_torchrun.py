"""torchrun's processes train one model together, or not at all."""

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from fairseq.trainer import Trainer

from commands import TRANSFORMER, arguments, train
from fairseq_luna.compat import torchrun
from tiny_training import trained_weights

ENVIRONMENT = {"MASTER_ADDR": "localhost", "MASTER_PORT": "29511", "WORLD_SIZE": "2", "RANK": "1"}


@pytest.fixture
def under_torchrun(monkeypatch):
    for name, value in ENVIRONMENT.items():
        monkeypatch.setenv(name, value)


def config(cpu=False, ddp_backend="pytorch_ddp"):
    distributed = SimpleNamespace(
        distributed_world_size=1,
        distributed_init_method=None,
        distributed_rank=0,
        distributed_no_spawn=False,
        distributed_backend="nccl",
        ddp_backend=ddp_backend,
    )
    return SimpleNamespace(common=SimpleNamespace(cpu=cpu, tpu=False), distributed_training=distributed)


@pytest.mark.parametrize("gpus, cpu", [(False, False), (False, True), (True, True)])
def test_processes_without_gpus_join_over_gloo(gpus, cpu, under_torchrun, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: gpus)
    cfg = config(cpu=cpu)
    torchrun.join(cfg)
    assert vars(cfg.distributed_training) == {
        "distributed_world_size": 2,
        "distributed_init_method": "env://",
        "distributed_rank": 1,
        "distributed_no_spawn": True,
        "distributed_backend": "gloo",
        "ddp_backend": "pytorch_ddp",
    }


def test_on_gpus_only_the_number_of_processes_is_told(under_torchrun, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    cfg, untouched = config(), config()
    untouched.distributed_training.distributed_world_size = 2
    torchrun.join(cfg)
    assert cfg == untouched


def test_unjoined_processes_are_refused_in_one_line(under_torchrun):
    with pytest.raises(SystemExit, match="torchrun --nproc_per_node 2") as refusal:
        Trainer(config(), None, None, None)
    assert "\n" not in str(refusal.value)


def test_on_gpus_the_refusal_does_not_send_them_to_the_cpu(under_torchrun, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    with pytest.raises(SystemExit, match=r"or: add distributed_training.distributed_world_size=\$WORLD_SIZE$"):
        Trainer(config(), None, None, None)


@pytest.mark.slow
def test_two_processes_equal_one_of_double_batches_also_after_a_resume(tiny_data, tmp_path):
    # fairseq 0.12.2's transformer has weights without gradient, for which torch's DDP, the default, fails.
    flags = (*TRANSFORMER, "--dropout=0", "--disable-validation", "--ddp-backend=legacy_ddp")
    alone = train(tiny_data, tmp_path / "one", *flags, "--max-update=6", "--update-freq=2")
    launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node=2", "--no-python"]
    launch += [str(Path(sys.executable).with_name("fairseq-train")), *arguments(tiny_data, tmp_path / "two", *flags)]
    for updates in (5, 6):
        subprocess.run([*launch, f"--max-update={updates}"], check=True, capture_output=True, timeout=300)
    expected = trained_weights(alone)
    for name, weight in trained_weights(tmp_path / "two" / "checkpoint_last.pt").items():
        torch.testing.assert_close(weight, expected[name], rtol=0, atol=1e-6)
