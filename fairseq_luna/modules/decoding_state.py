"""The state of a decoder between two steps: tensors, whose first dimension is the batch, in NamedTuples and tuples.

The state of an attention is a NamedTuple, whose fields may be None, and the state of a decoder a tuple of its layers'
states. A state is a value: a step takes one and returns the next, and nothing else stores it.
"""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from torch import Tensor

from ..ops.padding import Padding

# A NamedTuple class, or a pair: the class, and the types of the fields that are states themselves, by name.
StateType = Any


class AfterConvolution(NamedTuple):
    """The state of an attention that follows a short convolution."""

    inputs: Tensor  # (B, K - 1, C), the convolution's last inputs
    state: Any  # of the attention


def map_tensors(function: Callable[[Any], Any], state: Any) -> Any:
    """``state`` with the result of ``function`` in place of each tensor and each :class:`.Padding`."""
    if state is None:
        return None
    if isinstance(state, tuple):
        parts = [map_tensors(function, part) for part in state]
        return type(state)(*parts) if hasattr(state, "_fields") else tuple(parts)
    return function(state)


def select_rows(state: Any, rows: Tensor) -> Any:
    """``state`` with these rows of the batch: the one place where a state is reordered."""
    return map_tensors(lambda x: x.rows(rows) if isinstance(x, Padding) else x.index_select(0, rows), state)


def repeat_rows(state: Any, times: int) -> Any:
    """``state`` with each row ``times`` times in a row."""
    return state if times == 1 else map_tensors(lambda x: x.repeat_interleave(times, dim=0), state)


def batch_size_of(state: Any) -> int:
    """The number of rows of the first tensor; 0 if there is none."""
    if isinstance(state, Tensor):
        return state.shape[0]
    for part in state if isinstance(state, tuple) else ():
        size = batch_size_of(part)
        if size > 0:  # if asked whether a size is true, torch 2.6 would compile a graph for each size
            return size
    return 0


def flatten_state(state: Any, prefix: str = "") -> dict[str, Tensor]:
    """The tensors of ``state`` by name: field names joined by dots. Fields that are None are left out."""
    state = state.mask if isinstance(state, Padding) else state
    if state is None:
        return {}
    if isinstance(state, tuple):
        fields = getattr(state, "_fields", range(len(state)))
        parts = (flatten_state(part, f"{prefix}{field}.") for field, part in zip(fields, state, strict=True))
        return {name: tensor for part in parts for name, tensor in part.items()}
    return {prefix.rstrip("."): state}


def unflatten_state(state_type: StateType, tensors: Mapping[str, Tensor], prefix: str = "") -> Any:
    """The inverse of :func:`flatten_state`; None if no name begins with ``prefix``."""
    cls, inner_types = state_type if isinstance(state_type, tuple) else (state_type, {})
    if not any(name.startswith(prefix) for name in tensors):
        return None
    return cls(
        **{
            field: unflatten_state(inner_types[field], tensors, f"{prefix}{field}.")
            if field in inner_types
            else tensors.get(prefix + field)
            for field in cls._fields
        }
    )
