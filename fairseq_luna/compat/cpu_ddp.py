"""``--ddp-backend c10d`` and ``pytorch_ddp`` fail on a CPU: fairseq passes a GPU's number to torch's DDP.

fairseq 0.12.2 and fairseq-fixed 0.12.3.1. With this patch a model on the CPU is wrapped without device numbers.
"""

from typing import Any, NoReturn
from unittest.mock import patch

import torch
from fairseq.dataclass.configs import DistributedTrainingConfig
from fairseq.models import distributed_fairseq_model
from torch import nn

from fairseq_luna.replacing import replaces

SUMMARY = "torch's DDP was given a GPU's number for a model on the CPU; it is given none"


class _Asked(Exception):
    """Carries the device_ids that fairseq would pass to torch's DDP."""


def is_needed() -> bool:
    """Whether a model on the CPU is given a GPU's number."""

    def ask(**given: Any) -> NoReturn:
        raise _Asked(given["device_ids"])

    cfg = DistributedTrainingConfig(ddp_backend="pytorch_ddp")
    cfg.tpu = False
    with patch.object(distributed_fairseq_model, "DistributedDataParallel", ask):
        try:
            distributed_fairseq_model.DistributedFairseqModel(cfg, nn.Identity(), None, torch.device("cpu"))
        except _Asked as asked:
            return asked.args[0] is not None
    return False


def apply() -> None:
    @replaces(distributed_fairseq_model, "DistributedDataParallel")
    def ddp(original: Any, module: nn.Module, **given: Any) -> Any:
        if all(parameter.device.type == "cpu" for parameter in module.parameters()):
            given |= {"device_ids": None, "output_device": None}
        return original(module=module, **given)
