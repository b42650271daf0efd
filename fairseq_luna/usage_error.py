"""Bad input, said in one line."""

import sys
from collections.abc import Callable
from types import TracebackType


class UsageError(ValueError):
    """A flag, or a combination of flags, that cannot be used; the message names it and the mend."""


class CheckpointMismatch(UsageError):
    """The tensors of a checkpoint do not fit the model."""


def own_words(error: BaseException) -> str | None:
    """The message of a UsageError, None of anything else."""
    return str(error) if isinstance(error, UsageError) else None


def print_line(line: str) -> None:
    print(f"fairseq_luna: error: {line}", file=sys.stderr)


def report_in_one_line(in_one_line: Callable[[BaseException], str | None] = own_words) -> None:
    """Let a program that bad input ends print one line alone; every other error keeps its traceback.

    Args:
        in_one_line: gives the line of an error that bad input explains, None for every other.
    """
    previous = sys.excepthook

    def hook(kind: type[BaseException], error: BaseException, traceback: TracebackType | None) -> None:
        line = in_one_line(error)
        if line is None:
            previous(kind, error, traceback)
        else:
            print_line(line)

    sys.excepthook = hook
