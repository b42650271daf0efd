"""Arguments, errors and exit status of every command."""

import errno
import functools
import sys
from argparse import ArgumentParser, ArgumentTypeError, RawDescriptionHelpFormatter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NoReturn

Main = Callable[[Sequence[str] | None], int | None]


class CommandError(Exception):
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


def command(main: Main) -> Callable[..., int]:
    """Decorate ``main(arguments)`` of a command: it returns the exit status and prints errors in one line."""
    program = Path(main.__code__.co_filename).name

    def fail(message: object, status: int) -> int:
        print(f"{program}: {message}", file=sys.stderr)
        return status

    @functools.wraps(main)
    def run(arguments: Sequence[str] | None = None) -> int:
        try:
            return main(arguments) or 0
        except CommandError as error:
            return fail(error, error.status)
        except OSError as error:
            if error.errno == errno.ENOSPC:
                return fail("no space left on the disk; free some and run the same command again", 1)
            return fail(f"{error.filename}: {error.strerror}" if error.filename else error, 2)
        except KeyboardInterrupt:
            print(file=sys.stderr)
            return fail("stopped; no file is left incomplete", 130)

    return run
