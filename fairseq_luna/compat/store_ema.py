"""``--store-ema``, the mean of parameters: wrong means, and a start from a checkpoint without one."""

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import torch
from fairseq import checkpoint_utils, trainer
from fairseq.dataclass.configs import EMAConfig
from fairseq.models.ema import EMA
from fairseq.trainer import Trainer
from torch import Tensor, nn

from fairseq_luna.compat.patch import Patch
from fairseq_luna.monkeypatch import wrap_method


class EMAOfIntegersAndTiedWeights(Patch):
    """``--store-ema`` fails for a model that has integers, and forgets shared parameters too fast.

    fairseq 0.12.2 and fairseq-fixed 0.12.3.1 multiply integers, such as the seeds of random features, by the decay.
    With this patch they are copied from the last model, as are its random directions: the mean of several draws is not
    a draw. They also multiply a parameter that has several names, such as the embeddings of --share-all-embeddings,
    once for each
    name: the effective decay is then its third power. With this patch each parameter has the decay that was given.
    """

    name = "ema"
    summary = (
        "--store-ema failed with whole numbers, which are copied, and shared parameters decayed once for each name"
    )

    def is_needed(self) -> bool:
        """Whether the mean of a model with an integer fails, or a shared parameter decays twice in one step."""
        module = nn.Module()
        module.register_buffer("number", torch.tensor(1))
        shared, zero = nn.Module(), nn.Module()
        shared.one = shared.two = nn.Parameter(torch.ones(1))
        zero.one = zero.two = nn.Parameter(torch.zeros(1))
        mean = EMA(shared, EMAConfig(store_ema=True, ema_decay=0.5))
        mean.step(zero)
        try:
            EMA(module, EMAConfig(store_ema=True)).step(module)
        except RuntimeError:
            return True
        return mean.get_model().one.item() != 0.5

    def apply(self) -> None:
        @wrap_method(EMA, "__init__")
        def initialize(original: Any, self: EMA, model: nn.Module, *args: Any, **options: Any) -> None:
            original(self, model, *args, **options)
            copied = {
                name
                for name, value in model.state_dict().items()
                if not value.is_floating_point() or name.endswith(".directions")
            }
            self.skip_keys = copied.union(self.skip_keys)

        @wrap_method(EMA, "_step_internal")
        def step_internal(original: Any, self: EMA, new_model: nn.Module, *args: Any, **options: Any) -> Any:
            means = self.fp32_params if self.config.ema_fp32 else self.model.state_dict()
            state = _once_each(new_model.state_dict(), means)
            return original(self, SimpleNamespace(state_dict=lambda: state), *args, **options)


def _once_each(state: Mapping[str, Tensor], means: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """``state`` with one name for each tensor of ``means``."""
    first: dict[Any, str] = {}
    for name in state:
        mean = means.get(name)
        place = name if mean is None or not mean.numel() else (mean.data_ptr(), mean.shape, mean.stride())
        first.setdefault(place, name)
    return {name: state[name] for name in first.values()}


class MissingEMA(Patch):
    """A training with ``--store-ema`` cannot start from a checkpoint that has no mean of parameters.

    fairseq intends to begin the mean with the checkpoint's model, which it has already removed from memory, and ends in
    KeyError: 'model' (fairseq 0.12.2 and fairseq-fixed 0.12.3.1). With this patch the mean begins with this model.
    """

    name = "ema-start"
    summary = "--store-ema failed with a checkpoint that has no mean; the mean begins with its model"

    def is_needed(self) -> bool:
        """Whether a trainer with a mean fails to load a checkpoint without one."""

        def accept(*_: Any, **__: Any) -> None:
            pass

        stub = SimpleNamespace(
            task=None,
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

    def apply(self) -> None:
        @wrap_method(Trainer, "load_checkpoint")
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
