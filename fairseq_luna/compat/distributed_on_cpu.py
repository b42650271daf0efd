"""Distributed training on CPUs: processes of torchrun that do not join, and a GPU's number for a model on a CPU."""

import os
from typing import Any, NoReturn
from unittest.mock import patch

import torch
from fairseq.dataclass.configs import DistributedTrainingConfig
from fairseq.distributed import utils as distributed_utils
from fairseq.models import distributed_fairseq_model
from fairseq.trainer import Trainer
from torch import nn

from fairseq_luna.compat.patch import Patch
from fairseq_luna.monkeypatch import wrap_method


class IndependentCopies(Patch):
    """``torchrun fairseq-train`` without a GPU per process does not train one model.

    fairseq decides by the number of visible GPUs whether a run is distributed, before it looks for torchrun's
    variables. On CPUs fairseq-fixed 0.12.3.1 silently trains WORLD_SIZE independent copies, and 0.12.2 asks for NCCL.
    With this patch the processes join over gloo; where it is too late for that (fairseq-hydra-train) they are refused.
    """

    name = "torchrun"
    summary = "torchrun's processes on CPUs trained independent copies; they join over gloo"

    def is_needed(self) -> bool:
        """Whether fairseq does not join torchrun's processes over gloo on a machine without GPUs."""
        cfg = DistributedTrainingConfig(distributed_world_size=1)
        cfg.tpu = False  # in a training it is --tpu's value
        env = {"MASTER_ADDR": "localhost", "MASTER_PORT": "1", "WORLD_SIZE": "2", "RANK": "0"}
        with patch.dict(os.environ, env):
            try:
                distributed_utils.infer_init_method(cfg)
            except ZeroDivisionError:  # by the number of GPUs
                return True
        return cfg.distributed_init_method is None or cfg.distributed_backend != "gloo"

    def apply(self) -> None:
        @wrap_method(distributed_utils, "call_main")
        def call_main(original: Any, cfg: Any, *args: Any, **kwargs: Any) -> Any:
            configured = cfg.distributed_training.distributed_init_method is not None
            if under_torchrun() and not configured and not cfg.common.tpu:
                join(cfg)
            return original(cfg, *args, **kwargs)

        @wrap_method(Trainer, "__init__")
        def initialize(original: Any, self: Trainer, cfg: Any, *args: Any, **kwargs: Any) -> None:
            # fairseq-hydra-train imports a user directory only after call_main, too late to join.
            if under_torchrun() and not torch.distributed.is_initialized() and not cfg.common.tpu:
                world = os.environ["WORLD_SIZE"]
                on_cpus = f"--nproc_per_node {world} --no-python bash -c 'exec fairseq-hydra-train ARGS common.cpu=true"
                or_else = (
                    "add distributed_training.distributed_world_size=$WORLD_SIZE"
                    if torch.cuda.is_available() and not cfg.common.cpu
                    else f"torchrun {on_cpus} {_SETTINGS}'"
                )
                raise SystemExit(
                    f"torchrun started {world} processes, and each would train an independent copy; use fairseq-train,"
                    f" or: {or_else}"
                )
            original(self, cfg, *args, **kwargs)


# Each process of torchrun runs this, as in `torchrun ... --no-python bash -c 'exec fairseq-hydra-train ...'`.
_SETTINGS = " ".join(
    f"distributed_training.{setting}"
    for setting in (
        "distributed_world_size=$WORLD_SIZE",
        "distributed_rank=$RANK",
        "distributed_init_method=env://",
        "distributed_no_spawn=true",
        "distributed_backend=gloo",
    )
)


def under_torchrun() -> bool:
    """Whether torchrun started this process as one of several."""
    named = all(key in os.environ for key in ("MASTER_ADDR", "MASTER_PORT", "WORLD_SIZE", "RANK"))
    return named and int(os.environ["WORLD_SIZE"]) > 1


def join(cfg: Any) -> None:
    """Write torchrun's processes into the config; with GPUs, fairseq does the rest."""
    distributed = cfg.distributed_training
    distributed.distributed_world_size = int(os.environ["WORLD_SIZE"])
    if torch.cuda.is_available() and not cfg.common.cpu:
        return
    distributed.distributed_init_method = "env://"
    distributed.distributed_rank = int(os.environ["RANK"])
    distributed.distributed_no_spawn = True
    distributed.distributed_backend = "gloo"


class DeviceNumberOnCPU(Patch):
    """``--ddp-backend c10d`` and ``pytorch_ddp`` fail on a CPU: fairseq passes a GPU's number to torch's DDP.

    fairseq 0.12.2 and fairseq-fixed 0.12.3.1. With this patch a model on the CPU is wrapped without device numbers.
    """

    name = "cpu-ddp"
    summary = "torch's DDP was given a GPU's number for a model on the CPU; it is given none"

    def is_needed(self) -> bool:
        """Whether a model on the CPU is given a GPU's number."""

        def report_device_ids(**kwargs: Any) -> NoReturn:
            raise _DeviceIds(kwargs["device_ids"])

        cfg = DistributedTrainingConfig(ddp_backend="pytorch_ddp")
        cfg.tpu = False
        with patch.object(distributed_fairseq_model, "DistributedDataParallel", report_device_ids):
            try:
                distributed_fairseq_model.DistributedFairseqModel(cfg, nn.Identity(), None, torch.device("cpu"))
            except _DeviceIds as reported:
                return reported.args[0] is not None
        return False

    def apply(self) -> None:
        @wrap_method(distributed_fairseq_model, "DistributedDataParallel")
        def distributed_data_parallel(original: Any, module: nn.Module, **kwargs: Any) -> Any:
            if all(parameter.device.type == "cpu" for parameter in module.parameters()):
                kwargs |= {"device_ids": None, "output_device": None}
            return original(module=module, **kwargs)


class _DeviceIds(Exception):
    """Carries the device_ids that fairseq would pass to torch's DDP."""
