"""Errors in the use of this package, reported in one line."""

import os
import sys
from types import TracebackType


class UsageError(ValueError):
    """A flag, a combination of flags or a file that cannot be used; the message names it and says what to do."""


class UnreadableText(UsageError):
    """A text that a model cannot read, such as a text with more tokens than the model has positions."""


class ArgumentError(UsageError):
    """An argument that cannot be used: ``ArgumentError(name, value, what to do)``. Models name its flag instead."""

    def __str__(self) -> str:
        name, value, advice = self.args
        return f"{name} {value}: {advice}"


class CheckpointMismatch(UsageError, RuntimeError):
    """The tensors of a checkpoint do not fit the model: a RuntimeError, as torch's ``load_state_dict`` raises."""


def flag(name: str) -> str:
    """The command-line flag of a config field such as ``encoder_layers`` or ``encoder.layers``."""
    return "--arch" if name == "_name" else "--" + name.replace("_", "-").replace(".", "-")


def wants_traceback() -> bool:
    """Whether ``LOGLEVEL=DEBUG`` is in the environment, which is fairseq's own switch."""
    return os.environ.get("LOGLEVEL", "").upper() == "DEBUG"


def report_in_one_line() -> None:
    """Print a UsageError that ends the process as one line; other errors are passed to the previous ``sys.excepthook``.

    Where :func:`wants_traceback`, a UsageError keeps its traceback too.
    """
    previous = sys.excepthook

    def hook(kind: type[BaseException], error: BaseException, traceback: TracebackType | None) -> None:
        if isinstance(error, UsageError) and not wants_traceback():
            print(f"fairseq_luna: error: {error}", file=sys.stderr)
        else:
            previous(kind, error, traceback)

    sys.excepthook = hook
