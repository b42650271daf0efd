"""On a CPU ``--ddp-backend c10d`` and ``pytorch_ddp`` are torch's own DDP, as on a GPU."""

import sys

import pytest
import torch
from fairseq.dataclass.configs import DistributedTrainingConfig
from fairseq.models import distributed_fairseq_model
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from fairseq_luna.compat import cpu_ddp


@pytest.fixture
def group(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "excepthook", sys.excepthook)  # torch replaces it
    torch.distributed.init_process_group("gloo", init_method=f"file://{tmp_path / 'rendezvous'}", rank=0, world_size=1)
    yield torch.distributed.group.WORLD
    torch.distributed.destroy_process_group()


@pytest.mark.parametrize("backend", ["c10d", "pytorch_ddp"])
def test_a_model_on_the_cpu_is_wrapped(group, backend):
    cfg = DistributedTrainingConfig(ddp_backend=backend)
    cfg.tpu = False
    model = nn.Linear(2, 1)
    wrapped = distributed_fairseq_model.DistributedFairseqModel(cfg, model, group, torch.device("cpu"))
    assert isinstance(wrapped.module, DistributedDataParallel)
    assert wrapped.module.module is model and wrapped.module.device_ids is None
    wrapped(torch.ones(3, 2)).sum().backward()
    assert model.weight.grad.tolist() == [[3.0, 3.0]]


def test_a_model_on_another_device_keeps_its_device_ids(monkeypatch):
    """The meta device stands for a GPU's."""
    given = {}
    monkeypatch.setattr(
        distributed_fairseq_model, "DistributedDataParallel", lambda **all_of_it: given.update(all_of_it)
    )
    cpu_ddp.apply()
    distributed_fairseq_model.DistributedDataParallel(
        module=nn.Linear(1, 1, device="meta"), device_ids=[3], output_device=3
    )
    assert (given["device_ids"], given["output_device"]) == ([3], 3)
