"""Arguments, standard streams, errors and exit status of every command."""

import errno
import functools
import os
import sys
import traceback
from argparse import Action, ArgumentError, ArgumentParser, ArgumentTypeError, Namespace, RawDescriptionHelpFormatter
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NoReturn

from .usage_error import UsageError, wants_traceback

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
    """Argument parser that shows its description unwrapped, and raises CommandError for wrong arguments.

    A flag with one value may be given once: argparse itself would read the last value in silence. Flags of the actions
    ``append``, ``extend`` and ``count`` may be repeated.
    """

    def __init__(self, description: str | None, **options: Any) -> None:
        super().__init__(description=description, formatter_class=RawDescriptionHelpFormatter, **options)
        self.used_options: dict[str, str] = {}
        for name in (None, "store", "store_const", "store_true", "store_false"):
            self.register("action", name, _refuse_repetition(self._registry_get("action", name)))

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        self.used_options.clear()
        return super().parse_known_args(args, namespace)

    def error(self, message: str) -> NoReturn:
        raise CommandError(message)


def _refuse_repetition(kind: type[Action]) -> type[Action]:
    """The argparse action ``kind``, changed to refuse a second flag with the same destination."""

    class Once(kind):  # type: ignore[misc, valid-type]
        def __call__(
            self, parser: ArgumentParser, namespace: Namespace, values: Any, option_string: str | None = None
        ) -> None:
            if option_string is not None and isinstance(parser, Parser):
                if first := parser.used_options.get(self.dest):
                    raise ArgumentError(
                        self, _repeated_flag_error(first, option_string, getattr(namespace, self.dest), values)
                    )
                parser.used_options[self.dest] = option_string
            super().__call__(parser, namespace, values, option_string)

    return Once


def _repeated_flag_error(first: str, second: str, before: object, now: object) -> str:
    """The error message for the flag ``second`` with the value ``now`` after ``first`` with the value ``before``."""
    shown = [" ".join(map(str, value)) if isinstance(value, list) else str(value) for value in (before, now)]
    if first == second and all(shown):
        return f"is given twice, with {shown[0]} and with {shown[1]}; give it once"
    return "is given twice; give it once" if first == second else f"is given beside {first}; give one of them"


def positive(text: str) -> int:
    """Parse a whole number of 1 or more, as the ``type`` of a flag."""
    if not text.isdecimal() or int(text) < 1:
        raise ArgumentTypeError(f"{text!r} must be a whole number of 1 or more")
    return int(text)


def run_and_report(program: str, run: Callable[[], int | None]) -> int:
    """Call ``run``, print its errors in one line that starts with ``program``, and return the exit status."""

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
        return run_and_report(program, lambda: main(arguments))

    return run


def open_standard_streams() -> None:
    """Make standard streams usable as a shell may leave them: closed, or in an encoding without most characters.

    A closed stream is opened as the null device: otherwise the next file to be opened would get its number, and the
    output of C code. A character that the encoding lacks is printed as an escape. ``sys.__stdout__`` stays None if
    standard output was closed, and ``sys.stdin`` if standard input was.
    """
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        stream = getattr(sys, name)
        if stream is None:
            _open_null(number)
            if name != "stdin":
                setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115 (until the process ends)
        elif name != "stdin":
            with suppress(AttributeError):  # a stream of a program that replaced it
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


def require_open_streams() -> None:
    """Raises UsageError unless text can be read from standard input and written to standard output."""
    if sys.stdin is None:
        raise UsageError("standard input is closed; give the text with < FILE, or through a pipe")
    if sys.__stdout__ is None:
        raise UsageError("standard output is closed; give a file for the translations with > FILE")
