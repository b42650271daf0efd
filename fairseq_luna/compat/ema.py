"""``--store-ema`` fails for a model that has whole numbers, such as the seeds of random features.

fairseq 0.12.2 and fairseq-fixed 0.12.3.1 multiply them by the decay. With this patch they are copied from the last
model, as are its random directions: a mean of several draws is not one.
"""

from typing import Any

import torch
from fairseq.dataclass.configs import EMAConfig
from fairseq.models.ema import EMA
from torch import nn

from fairseq_luna.replacing import replaces

SUMMARY = "--store-ema failed for a model with whole numbers; they are copied"


def is_needed() -> bool:
    """Whether the mean of a model with a whole number fails."""
    module = nn.Module()
    module.register_buffer("number", torch.tensor(1))
    try:
        EMA(module, EMAConfig(store_ema=True)).step(module)
    except RuntimeError:
        return True
    return False


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
