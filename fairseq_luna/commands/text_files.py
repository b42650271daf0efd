"""Reading parallel text line by line, plain or gzipped, without loading a corpus into memory."""

import codecs
import gzip
import zlib
from collections.abc import Iterable, Iterator
from itertools import islice, zip_longest
from pathlib import Path
from typing import BinaryIO, TypeVar

from ..usage_error import UsageError

# Between the segments of a document that stand in one line.
SEPARATOR = "<sep>"
T = TypeVar("T")


def read_lines(path: Path) -> Iterator[str]:
    """The lines of a file, as :func:`decoded`.

    Raises:
        UsageError: a line that is not UTF-8, or a corrupt gzip file.
    """
    try:
        with _open(path) as file:
            yield from decoded(file, f"{path}, ")
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise UsageError(f"{path}: corrupt or incomplete ({error}); download it again") from error


def decoded(lines: Iterable[bytes], where: str = "") -> Iterator[str]:
    """Lines as text, without their ends. Only a newline ends a line: sentences contain U+2028 and similar characters.

    Raises:
        UsageError: a line that is not UTF-8; its number stands after ``where``.
    """
    for number, line in enumerate(lines, 1):
        if number == 1:
            line = line.removeprefix(codecs.BOM_UTF8)
        try:
            text = line.removesuffix(b"\n").removesuffix(b"\r").decode()
        except UnicodeDecodeError as error:
            place = f"{where}line {number}"
            raise UsageError(f"{place}: not UTF-8 ({error.reason} at byte {error.start + 1})") from error
        yield text


def read_pairs(first: Path, second: Path) -> Iterator[tuple[str, str]]:
    """The pairs of lines of two files.

    Raises:
        UsageError: one has more lines than the other; both numbers are said.
    """
    iterators = read_lines(first), read_lines(second)
    for paired, (line, other) in enumerate(zip_longest(*iterators)):
        if line is None or other is None:
            longer = paired + 1 + sum(1 for _ in iterators[line is None])
            counts = (paired, longer) if line is None else (longer, paired)
            raise UsageError(
                f"{first} has {counts[0]:,} lines but {second} has {counts[1]:,}: they are not a parallel text"
            )
        yield line, other


def count_lines(path: Path) -> int:
    """Lines of a plain file that ends in a newline."""
    with path.open("rb") as file:
        return sum(block.count(b"\n") for block in iter(lambda: file.read(1 << 20), b""))


def ending(path: Path) -> str:
    """``de`` of ``test.de`` or ``test.de.gz``."""
    return (path.with_suffix("") if path.suffix == ".gz" else path).suffix.removeprefix(".")


def shortened(line: str, longest: int = 80) -> str:
    """``line`` as it fits into a message."""
    return line if len(line) <= longest else f"{line[: longest - 3]}..."


def in_chunks(items: Iterable[T], size: int) -> Iterator[list[T]]:
    """Lists of ``size`` items, the last one shorter."""
    iterator = iter(items)
    while chunk := list(islice(iterator, size)):
        yield chunk


def _open(path: Path) -> BinaryIO:
    return gzip.open(path) if path.suffix == ".gz" else path.open("rb")  # type: ignore[return-value]
