"""What cannot be scored, and the reading of files that says so."""

from pathlib import Path

from corpora.problem import CannotPrepare
from corpora.text_files import read_lines


class CannotScore(ValueError):
    """Bad input; the message names the file or flag and the mend, in one line."""


def lines_of(path: Path) -> list[str]:
    """The lines of a text file, plain or gzipped; only a newline ends one.

    Raises:
        CannotScore: no such file, or it is not UTF-8.
    """
    try:
        return list(read_lines(path))
    except CannotPrepare as problem:
        raise CannotScore(str(problem)) from problem
    except OSError as error:
        raise CannotScore(f"{path}: {error.strerror or error}") from error
