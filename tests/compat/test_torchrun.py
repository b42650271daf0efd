"""torchrun's processes join one training, or end; tests/reliability/test_processes.py trains with them."""

from types import SimpleNamespace

import pytest
import torch
from fairseq.trainer import Trainer

from fairseq_luna.compat import distributed_on_cpu

ENVIRONMENT = {"MASTER_ADDR": "localhost", "MASTER_PORT": "29511", "WORLD_SIZE": "2", "RANK": "1"}


@pytest.fixture
def under_torchrun(monkeypatch):
    for name, value in ENVIRONMENT.items():
        monkeypatch.setenv(name, value)


def config(cpu=False):
    distributed = SimpleNamespace(distributed_world_size=1, distributed_init_method=None, distributed_backend="nccl")
    return SimpleNamespace(common=SimpleNamespace(cpu=cpu, tpu=False), distributed_training=distributed)


@pytest.mark.parametrize("gpus, cpu", [(False, False), (False, True), (True, True)])
def test_processes_without_gpus_join_over_gloo(gpus, cpu, under_torchrun, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: gpus)
    cfg = config(cpu=cpu)
    distributed_on_cpu.join(cfg)
    assert vars(cfg.distributed_training) == {
        "distributed_world_size": 2,
        "distributed_init_method": "env://",
        "distributed_rank": 1,
        "distributed_no_spawn": True,
        "distributed_backend": "gloo",
    }


def test_on_gpus_only_the_number_of_processes_is_told(under_torchrun, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    cfg, untouched = config(), config()
    untouched.distributed_training.distributed_world_size = 2
    distributed_on_cpu.join(cfg)
    assert cfg == untouched


def test_unjoined_processes_are_refused_in_one_line(under_torchrun):
    with pytest.raises(SystemExit, match="torchrun --nproc_per_node 2") as refusal:
        Trainer(config(), None, None, None)
    assert "\n" not in str(refusal.value)


def test_on_gpus_the_refusal_does_not_send_them_to_the_cpu(under_torchrun, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    with pytest.raises(SystemExit, match=r"or: add distributed_training.distributed_world_size=\$WORLD_SIZE$"):
        Trainer(config(), None, None, None)
