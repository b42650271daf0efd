"""What cannot be scored, and the reading of files that says so."""

from pathlib import Path

from shared.command import CommandError
from corpora.text_files import read_lines


class CommandError(ValueError):
    """Bad input; the message names the file or flag and the mend, in one line."""


def lines_of(path: Path) -> list[str]:
    """The lines of a text file, plain or gzipped; only a newline ends one.

    Raises:
        CommandError: no such file, or it is not UTF-8.
    """
    try:
        return list(read_lines(path))
    except CommandError as problem:
        raise CommandError(str(problem)) from problem
    except OSError as error:
        raise CommandError(f"{path}: {error.strerror or error}") from error
