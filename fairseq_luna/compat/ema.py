"""``--store-ema`` fails for a model that has whole numbers, and forgets shared parameters too fast.

fairseq 0.12.2 and fairseq-fixed 0.12.3.1 multiply whole numbers, such as the seeds of random features, by the decay.
With this patch they are copied from the last model, as are its random directions: a mean of several draws is not one.
They also multiply a parameter that has several names, such as the embeddings of --share-all-embeddings, once for each
name: its decay is to the power of three then. With this patch each parameter has the decay that was given.
"""

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import torch
from fairseq.dataclass.configs import EMAConfig
from fairseq.models.ema import EMA
from torch import Tensor, nn

from fairseq_luna.replacing import replaces

SUMMARY = "--store-ema failed with whole numbers, which are copied, and shared parameters decayed once for each name"


def is_needed() -> bool:
    """Whether the mean of a model with a whole number fails, or a shared parameter decays twice in one step."""
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


def apply() -> None:
    @replaces(EMA, "__init__")
    def initialise(original: Any, self: EMA, model: nn.Module, *args: Any, **options: Any) -> None:
        original(self, model, *args, **options)
        copied = {
            name
            for name, value in model.state_dict().items()
            if not value.is_floating_point() or name.endswith(".directions")
        }
        self.skip_keys = copied.union(self.skip_keys)

    @replaces(EMA, "_step_internal")
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
