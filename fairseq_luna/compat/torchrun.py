"""``torchrun fairseq-train`` without a GPU per process does not train one model.

fairseq decides by the number of visible GPUs whether a run is distributed, before it looks for torchrun's variables. On
CPUs fairseq-fixed 0.12.3.1 silently trains WORLD_SIZE independent copies, and 0.12.2 asks for NCCL. With this patch the
processes join over gloo; where that is too late (fairseq-hydra-train) they are refused.
"""

import os
from typing import Any
from unittest.mock import patch

import torch
from fairseq.dataclass.configs import DistributedTrainingConfig
from fairseq.distributed import utils as distributed_utils
from fairseq.trainer import Trainer

from fairseq_luna.replacing import replaces

SUMMARY = "torchrun's processes on CPUs trained independent copies; they join over gloo"

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


def is_needed() -> bool:
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


def under_torchrun() -> bool:
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


def apply() -> None:
    @replaces(distributed_utils, "call_main")
    def call_main(original: Any, cfg: Any, *args: Any, **kwargs: Any) -> Any:
        configured = cfg.distributed_training.distributed_init_method is not None
        if under_torchrun() and not configured and not cfg.common.tpu:
            join(cfg)
        return original(cfg, *args, **kwargs)

    @replaces(Trainer, "__init__")
    def initialise(original: Any, self: Trainer, cfg: Any, *args: Any, **kwargs: Any) -> None:
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
                f"torchrun started {world} processes, and each would train an independent copy; use fairseq-train, or:"
                f" {or_else}"
            )
        original(self, cfg, *args, **kwargs)
