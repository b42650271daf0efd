"""What all layers of a model make of the same padding mask, made once for a batch."""

from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any, TypeVar

import torch
from torch import Tensor

Result = TypeVar("Result")


def once_per_batch(make: Callable[..., Result]) -> Callable[..., Result]:
    """``make``, which returns the last result again if it is called with the same positional arguments.

    A tensor is the same argument if it is the same object and was not changed since, which cannot be told of one that
    was made in inference mode: then nothing is remembered. The last arguments and the last
    result are kept in memory: use it for what is small beside a layer's activations, and has no gradient.
    """
    last: tuple[Sequence[Any], Sequence[Any], Result] | None = None

    @wraps(make)
    def remembered(*arguments: Any) -> Result:
        nonlocal last
        if _is_recording() or any(isinstance(x, Tensor) and x.is_inference() for x in arguments):
            return make(*arguments)  # a recorded graph must contain what it reads
        state = _state(arguments)
        found = last  # another thread may replace it
        if found is not None and found[1] == state and all(map(_same, found[0], arguments)):
            return found[2]
        result = make(*arguments)
        last = arguments, state, result
        return result

    return remembered


def _same(one: Any, other: Any) -> bool:
    return one is other or (not isinstance(one, Tensor) and one == other)


def _state(arguments: Sequence[Any]) -> list[Any]:
    """What changes with every write to a tensor, and with inference mode, whose tensors cannot be used outside it."""
    versions = [x._version for x in arguments if isinstance(x, Tensor)]
    return [torch.is_inference_mode_enabled(), *versions]


def _is_recording() -> bool:
    captured = torch.cuda.is_initialized() and torch.cuda.is_current_stream_capturing()
    return captured or torch.compiler.is_compiling() or torch.jit.is_tracing()
