"""The options of Apollo: their ranges, their values as a state can hold them, and its parameters."""

import math
import sys
from collections.abc import Iterable
from numbers import Real
from typing import Any

from torch import Tensor

from .apollo_update import DEFAULT_DECAY

DECAY_TYPES = ("L2", "decoupled", "stable")


def check_options(options: dict[str, Any]) -> None:
    """Raise ValueError if an option of a parameter group is out of its range."""
    ranges = {
        "lr": (lambda x: 0 <= x < math.inf, "a finite number of at least 0, such as 0.1"),
        "beta": (lambda x: 0 <= x < 1, "in [0, 1), such as 0.9"),
        "eps": (lambda x: 0 < x < math.inf, "a finite number above 0, such as 1e-4"),
        "weight_decay": (lambda x: 0 <= x < math.inf, "a finite number of at least 0, such as 1e-8"),
    }
    for name, (holds, required) in ranges.items():
        if not (isinstance(options[name], Real) and holds(options[name])):
            raise ValueError(f"Apollo: {name}={options[name]!r} must be {required}")
    choices = {"rebound": tuple(DEFAULT_DECAY), "weight_decay_type": (None, *DECAY_TYPES)}
    for name, allowed in choices.items():
        if options[name] not in allowed:
            raise ValueError(f"Apollo: {name}={options[name]!r} must be one of {allowed}")


def plain(options: dict[str, Any]) -> dict[str, Any]:
    """Numbers of other libraries as Python's, so that a saved state holds nothing but tensors and plain values."""
    return {
        name: float(value) if isinstance(value, Real) and type(value) is not int else value
        for name, value in options.items()
    }


def check_whole(params: Iterable[Tensor]) -> None:
    """Raise ValueError if a parameter is a part of a tensor, or several in one, whose norms would be others."""
    # Without an import, which takes time, there is no such tensor.
    sharded = getattr(sys.modules.get("torch.distributed.tensor"), "DTensor", ())
    for p in params:
        # torch's marks of FSDP's first version, and fairscale's class.
        flat = hasattr(p, "_is_flat_param") or hasattr(p, "_fsdp_flattened") or type(p).__name__ == "FlatParameter"
        if flat or isinstance(p, sharded):
            raise ValueError(
                "Apollo: the parameters are FSDP's (fully_shard, FullyShardedDataParallel), and Apollo's norms need"
                " whole tensors: use DistributedDataParallel, and ZeroRedundancyOptimizer to save memory"
            )
