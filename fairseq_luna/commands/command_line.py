"""Arguments, errors and exit status of every command."""

import errno
import functools
import os
import sys
import traceback
from argparse import ArgumentParser, ArgumentTypeError, RawDescriptionHelpFormatter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NoReturn

from ..usage_error import UsageError, wants_traceback

_ENDED_BY_PIPE = 141  # as a shell reports it


class CommandError(UsageError):
    """Bad input, or a step that failed.

    Args:
        message: names the flag or file and says what to do; printed instead of a traceback.
        status: the command's exit status, 2 for bad input and 1 for a failure.
    """

    def __init__(self, message: str, status: int = 2) -> None:
        super().__init__(message)
        self.status = status


class Parser(ArgumentParser):
    """Shows its description as it is written, and raises CommandError for wrong arguments."""

    def __init__(self, description: str | None, **options: Any) -> None:
        super().__init__(description=description, formatter_class=RawDescriptionHelpFormatter, **options)

    def error(self, message: str) -> NoReturn:
        raise CommandError(message)


def positive(text: str) -> int:
    """The type of a flag that counts something."""
    if not text.isdecimal() or int(text) < 1:
        raise ArgumentTypeError(f"{text!r} must be a whole number of 1 or more")
    return int(text)


def reported(program: str, run: Callable[[], int | None]) -> int:
    """The exit status of ``run``, whose errors are printed in one line that begins with the name ``program``."""

    def fail(message: object, status: int) -> int:
        if wants_traceback():
            traceback.print_exc()
        print(f"{program}: {message}", file=sys.stderr)
        return status

    try:
        status = run() or 0
        sys.stdout.flush()
        return status
    except UsageError as error:
        return fail(error, getattr(error, "status", 2))
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # or the flush at the exit fails too
        return _ENDED_BY_PIPE
    except OSError as error:
        if error.errno == errno.ENOSPC:
            return fail("no space left on the disk; free some and run the same command again", 1)
        return fail(f"{error.filename}: {error.strerror}" if error.filename else error, 2)
    except KeyboardInterrupt:
        print(file=sys.stderr)
        return fail("stopped; no file is left incomplete", 130)


def command(main: Callable[[Sequence[str] | None], int | None]) -> Callable[..., int]:
    """Decorate ``main(arguments)`` of a script: it returns the exit status and prints errors in one line."""
    program = Path(main.__code__.co_filename).name

    @functools.wraps(main)
    def run(arguments: Sequence[str] | None = None) -> int:
        return reported(program, lambda: main(arguments))

    return run
