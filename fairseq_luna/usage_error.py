"""Bad input, said in one line."""

import sys
from types import TracebackType


class UsageError(ValueError):
    """A flag, or a combination of flags, that cannot be used; the message names it and the mend."""


def report_in_one_line() -> None:
    """Let a program that a UsageError ends print its message alone; every other error keeps its traceback."""
    previous = sys.excepthook

    def hook(kind: type[BaseException], error: BaseException, traceback: TracebackType | None) -> None:
        if isinstance(error, UsageError):
            print(f"fairseq_luna: error: {error}", file=sys.stderr)
        else:
            previous(kind, error, traceback)

    sys.excepthook = hook
