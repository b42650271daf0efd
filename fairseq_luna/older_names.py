"""Settings and parameters of models that once had other names, which older checkpoints, command lines and YAML have."""

from collections.abc import Mapping
from typing import Any

from .usage_error import UsageError, flag

# By the older name. 0, the default, leaves an older name its value: no config says which values were given.
CURRENT_NAMES = dict.fromkeys(
    ("luna_kernel_size", "fastformer_kernel_size", "block_kernel_size"), "attention_kernel_size"
)
FORMER_PARENT = ".self_attn.attention."


def with_current_names(settings: Mapping[str, Any]) -> dict[str, Any]:
    """``settings`` by current names. Raises UsageError if two names of one setting have different values."""
    current = dict(settings)  # a config of omegaconf 2.0 refuses names that it lacks
    for older, name in CURRENT_NAMES.items():
        value = current.pop(older, None)
        if value is None:
            continue
        if current.get(name) and current[name] != value:
            both = f"{flag(older)} {value}, {flag(name)} {current[name]}"
            raise UsageError(f"{both}: the first is an older name of the second; leave it out")
        current[name] = value
    return current


def rename_parameters(state_dict: dict[str, Any]) -> None:
    """Give the parameters of a checkpoint their current names, in place and in their order.

    A self-attention with a convolution was once a child of the convolution's module, called "attention".
    """
    if any(FORMER_PARENT in name for name in state_dict):
        named = {name.replace(FORMER_PARENT, ".self_attn."): value for name, value in state_dict.items()}
        state_dict.clear()
        state_dict.update(named)
