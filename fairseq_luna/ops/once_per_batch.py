"""What all layers of a model make of the same padding mask, made once in each forward pass.

Without it a training step of base size launches 2,070 operators in place of 1,114 with block attention, 1,756 in place
of 1,394 with local and 1,397 in place of 1,267 with Luna (``scripts/benchmark.py launches``, 2026-11-26).
"""

from collections.abc import Callable
from contextvars import ContextVar
from functools import wraps
from typing import Any, TypeVar

import torch
from torch import Tensor

Result = TypeVar("Result")
Made = dict[tuple[Any, ...], tuple[tuple[Any, ...], Any]]

# What was made in the pass that runs now in this thread; None outside of one.
_made: ContextVar[Made | None] = ContextVar("_made", default=None)


def one_pass(forward: Callable[..., Result]) -> Callable[..., Result]:
    """``forward`` of a stack of layers: while it runs, :func:`once_per_batch` remembers, and no longer."""

    @wraps(forward)
    def remembering(*arguments: Any, **options: Any) -> Result:
        if torch.compiler.is_compiling():
            return forward(*arguments, **options)
        token = _made.set({})
        try:
            return forward(*arguments, **options)
        finally:
            _made.reset(token)

    return remembering


def once_per_batch(make: Callable[..., Result]) -> Callable[..., Result]:
    """``make``, which within :func:`one_pass` returns the same result for the same positional arguments.

    A tensor is the same argument if it is the same object: nothing may write to it during the pass. Outside, as in a
    module that is used alone, every call makes its result. Use it for what is small beside a layer's activations, and
    has no gradient.
    """

    @wraps(make)
    def remembered(*arguments: Any) -> Result:
        made = None if torch.compiler.is_compiling() else _made.get()
        if made is None:
            return make(*arguments)
        key = (make, *(id(x) if isinstance(x, Tensor) else x for x in arguments))
        try:
            found = made.get(key)
        except TypeError:  # a size that is a symbol has no hash
            return make(*arguments)
        if found is None:
            found = made[key] = arguments, make(*arguments)  # the arguments too, so that no id is used again
        return found[1]

    return remembered
