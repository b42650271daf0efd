"""Reading parallel text line by line, plain or gzipped, without loading a corpus into memory."""

import codecs
import gzip
import zlib
from collections.abc import Iterable, Iterator
from itertools import islice, zip_longest
from pathlib import Path
from typing import BinaryIO, TypeVar

from .usage_error import UsageError

# Between segments of a document in the same line.
SEPARATOR = "<sep>"
_GZIP = b"\x1f\x8b"
T = TypeVar("T")
_MARKS = {
    codecs.BOM_UTF32_LE: "UTF-32",
    codecs.BOM_UTF32_BE: "UTF-32",
    codecs.BOM_UTF16_LE: "UTF-16",
    codecs.BOM_UTF16_BE: "UTF-16",
}


def read_lines(path: Path) -> Iterator[str]:
    """Yield the lines of a file, plain or gzipped; see :func:`decode_lines`.

    Raises:
        UsageError: a line is not UTF-8 or has a NUL byte, or a gzip file is corrupt.
    """
    try:
        with _open(path) as file:
            yield from decode_lines(file, f"{path}, ")
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise UsageError(f"{path}: corrupt or incomplete ({error}); download it again") from error


def decode_lines(lines: Iterable[bytes], where: str = "") -> Iterator[str]:
    """Decode lines and remove their ends. Only a newline ends a line: sentences contain U+2028 and similar characters.

    Raises:
        UsageError: a line is not UTF-8 or has a NUL byte. The message has ``where`` and its number.
    """
    for number, line in enumerate(lines, 1):
        if number == 1:
            if encoding := _wide_encoding(line):
                raise UsageError(f"{where}line 1: is {encoding}, not UTF-8; convert it: iconv -f {encoding} -t UTF-8")
            if line.startswith(_GZIP):
                raise UsageError(f"{where}line 1: is gzip, not text; unpack it: zcat FILE |")
            line = line.removeprefix(codecs.BOM_UTF8)
        if (place := line.find(b"\0")) >= 0:
            raise UsageError(
                f"{where}line {number}: has a NUL byte at byte {place + 1}; the file is damaged, or is not UTF-8 text"
            )
        try:
            text = line.removesuffix(b"\n").removesuffix(b"\r").decode()
        except UnicodeDecodeError as error:
            raise UsageError(
                f"{where}line {number}: not UTF-8 ({error.reason} at byte {error.start + 1}); convert it, "
                "if it is Latin-1: iconv -f LATIN1 -t UTF-8"
            ) from error
        yield text


def read_pairs(first: Path, second: Path) -> Iterator[tuple[str, str]]:
    """Yield the pairs of lines of two files.

    Raises:
        UsageError: one file has more lines. The message has both numbers.
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
    """The number of lines of a plain file that ends in a newline."""
    with path.open("rb") as file:
        return sum(block.count(b"\n") for block in iter(lambda: file.read(1 << 20), b""))


def language_suffix(path: Path) -> str:
    """The ending of a file name, such as ``de`` for ``test.de`` and ``test.de.gz``."""
    return (path.with_suffix("") if path.suffix == ".gz" else path).suffix.removeprefix(".")


def truncate(line: str, longest: int = 80) -> str:
    """``line``, cut to ``longest`` characters for a message."""
    return line if len(line) <= longest else f"{line[: longest - 3]}..."


def batched(items: Iterable[T], size: int) -> Iterator[list[T]]:
    """Yield lists of ``size`` items; the last list may be shorter."""
    iterator = iter(items)
    while chunk := list(islice(iterator, size)):
        yield chunk


def _wide_encoding(start: bytes) -> str | None:
    """UTF-16 or UTF-32, by iconv's name, if a text in this encoding starts with ``start``, with or without a BOM."""
    for mark, encoding in _MARKS.items():  # UTF-32's first, which begins with UTF-16's
        if start.startswith(mark):
            return encoding
    if 3 * start.count(0) > len(start):
        for width, name in ((4, "UTF-32"), (2, "UTF-16")):
            # The first character of most texts is ASCII, whose other bytes are NUL.
            first = start[:width]
            if first.count(0) == width - 1 and (first[0] or first[-1]):
                return f"{name}{'LE' if first[0] else 'BE'}"
    return None


def _open(path: Path) -> BinaryIO:
    return gzip.open(path) if path.suffix == ".gz" else path.open("rb")  # type: ignore[return-value]
