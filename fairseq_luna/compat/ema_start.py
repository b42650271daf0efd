"""A training with ``--store-ema`` cannot start from a checkpoint that has no mean of parameters.

fairseq means to begin the mean with the checkpoint's model, which it has removed from memory, and ends in KeyError:
'model' (fairseq 0.12.2 and fairseq-fixed 0.12.3.1). With this patch the mean begins so.
"""

from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

from fairseq import checkpoint_utils, trainer
from fairseq.trainer import Trainer
from torch import nn

from fairseq_luna.replacing import replaces

SUMMARY = "--store-ema failed with a checkpoint that has no mean; the mean begins with its model"


def is_needed() -> bool:
    """Whether a trainer with a mean fails to load a checkpoint without one."""

    def accept(*_: Any, **__: Any) -> None:
        pass

    stub = SimpleNamespace(
        **dict.fromkeys(("data_parallel_rank", "data_parallel_world_size"), 0),
        **dict.fromkeys(("tpu", "is_fsdp"), False),
        model=SimpleNamespace(load_state_dict=accept),
        get_criterion=nn.Module,
        lr_step=accept,
        get_num_updates=accept,
        ema=SimpleNamespace(restore=accept),
        cfg=SimpleNamespace(
            checkpoint=SimpleNamespace(load_checkpoint_on_all_dp_ranks=False),
            distributed_training=SimpleNamespace(use_sharded_state=False, zero_sharding="none"),
            ema=SimpleNamespace(store_ema=True, ema_fp32=False),
            model=None,
        ),
    )
    begin = {"epoch": 1, "iterations_in_epoch": 0}
    state = {"model": {}, "optimizer_history": [], "extra_state": {"train_iterator": begin}}
    with (
        patch.object(checkpoint_utils, "load_checkpoint_to_cpu", lambda *_, **__: state),
        patch.object(trainer.logger, "disabled", True),
    ):
        try:
            Trainer.load_checkpoint(stub, __file__)
        except KeyError:
            return True
    return False


def apply() -> None:
    @replaces(Trainer, "load_checkpoint")
    def load_checkpoint(original: Any, self: Trainer, *args: Any, **kwargs: Any) -> Any:
        if not self.cfg.ema.store_ema:
            return original(self, *args, **kwargs)
        load = checkpoint_utils.load_checkpoint_to_cpu

        def with_mean(*args: Any, **kwargs: Any) -> Any:
            state = load(*args, **kwargs)
            state["extra_state"] = {"ema": state["model"], **(state.get("extra_state") or {})}
            return state

        with patch.object(checkpoint_utils, "load_checkpoint_to_cpu", with_mean):
            return original(self, *args, **kwargs)
