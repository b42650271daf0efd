"""``--ddp-backend c10d`` and ``pytorch_ddp`` on a CPU: fairseq gives torch's DDP a GPU's number, which it refuses."""

import functools
from typing import Any, NoReturn
from unittest.mock import patch

import torch
from fairseq.dataclass.configs import DistributedTrainingConfig
from fairseq.models import distributed_fairseq_model
from torch import nn

from fairseq_luna.compat.patch import Patch


class _Asked(Exception):
    """Carries what the host would have given to torch's DDP."""


def is_needed() -> bool:
    """Whether a model on the CPU is to be put on a GPU."""

    def ask(**given: Any) -> NoReturn:
        raise _Asked(given["device_ids"])

    cfg = DistributedTrainingConfig(ddp_backend="pytorch_ddp")
    cfg.tpu = False
    with patch.object(distributed_fairseq_model, "DistributedDataParallel", ask):
        try:
            distributed_fairseq_model.DistributedFairseqModel(cfg, nn.Linear(1, 1), None, torch.device("cpu"))
        except _Asked as asked:
            return asked.args[0] is not None
    return False


def apply() -> None:
    original_ddp = distributed_fairseq_model.DistributedDataParallel

    @functools.wraps(original_ddp, updated=())
    def ddp(module: nn.Module, **given: Any) -> nn.Module:
        if all(parameter.device.type == "cpu" for parameter in module.parameters()):
            given |= {"device_ids": None, "output_device": None}
        return original_ddp(module=module, **given)

    distributed_fairseq_model.DistributedDataParallel = ddp


PATCH = Patch(
    "cpu-ddp", is_needed, apply, "torch's DDP was handed the number of a GPU for a model on the CPU; it stays there"
)
