"""Standard input, output and errors as a shell may leave them: closed, or in an encoding without most characters."""

import os
import sys
from contextlib import suppress

from ..usage_error import UsageError


def prepare() -> None:
    """Let a command print whatever it has to say.

    A stream that is closed becomes the null device: the next file to be opened would otherwise get its number, and what
    C code prints. A character that the encoding lacks is printed as its code. ``sys.__stdout__`` stays None if standard
    output was closed, and ``sys.stdin`` if standard input was.
    """
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        stream = getattr(sys, name)
        if stream is None:
            _open_null(number)
            if name != "stdin":
                setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115 (until the process ends)
        elif name != "stdin":
            with suppress(AttributeError):  # a stream that a program has put there
                stream.reconfigure(errors="backslashreplace")


def _open_null(number: int) -> None:
    """Give ``number`` to the null device unless a file has it already."""
    try:
        os.fstat(number)
    except OSError:
        opened = os.open(os.devnull, os.O_RDWR)
        if opened != number:
            os.dup2(opened, number)
            os.close(opened)


def require_open() -> None:
    """Raises UsageError unless text can be read from standard input and written to standard output."""
    if sys.stdin is None:
        raise UsageError("standard input is closed; give the text with < FILE, or through a pipe")
    if sys.__stdout__ is None:
        raise UsageError("standard output is closed; give a file for the translations with > FILE")
