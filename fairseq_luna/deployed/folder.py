"""The files of an exported model."""

import json
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple

from ..usage_error import UsageError

FORMAT = 3
SETTINGS, SOURCE_WORDS, TARGET_WORDS, PIECES = "settings.json", "source.txt", "target.txt", "pieces.model"
BEFORE = ["<s>", "<pad>", "</s>", "<unk>"]  # the words of every dictionary of fairseq that its file leaves out
BLOCK = 1 << 20
AGAIN = "export the model again"


class Settings(NamedTuple):
    """What ``settings.json`` holds, besides the format."""

    starts: list[dict[str, Any]]  # of each first graph its file and the shortest and longest source
    longest_target: int
    pieces: bool  # whether there is a SentencePiece model
    mark: str | None  # of the pieces in the dictionary of the source
    files: dict[str, dict[str, Any]]  # the marks of every other file, by name


def marks_of(file: Path) -> dict[str, Any]:
    """The number of bytes in ``file`` and their hash."""
    found = sha256()
    with file.open("rb") as content:
        while block := content.read(BLOCK):
            found.update(block)
        return {"bytes": content.tell(), "sha256": found.hexdigest()}


def settings_of(folder: Path) -> Settings:
    """The settings in ``folder``, whose files are complete.

    Raises:
        UsageError: there are none, they are of another version of this package, or a file is missing or has changed.
    """
    file = folder / SETTINGS
    try:
        settings = json.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(f"{file}: {error.strerror}; give a folder that fairseq-luna export made") from error
    except ValueError as error:
        raise UsageError(f"{file}: is damaged; {AGAIN}") from error
    found = settings.pop("format", None) if isinstance(settings, dict) else None
    if found != FORMAT:
        raise UsageError(f"{folder}: has format {found}, this fairseq_luna reads {FORMAT}; {AGAIN}")
    try:
        read = Settings(**settings)
    except TypeError as error:
        raise UsageError(f"{file}: is damaged; {AGAIN}") from error
    for name, marks in read.files.items():
        check(folder / name, marks)
    return read


def check(file: Path, marks: dict[str, Any]) -> None:
    """Raises UsageError if ``file`` is not the one that was exported."""
    try:
        now = marks_of(file)
    except OSError as error:
        raise UsageError(f"{file}: {error.strerror}; {AGAIN}") from error
    if now["bytes"] != marks["bytes"]:
        raise UsageError(f"{file}: has {now['bytes']} bytes, {marks['bytes']} were exported; {AGAIN}")
    if now != marks:
        raise UsageError(f"{file}: has changed since the export; {AGAIN}")


def words_of(file: Path) -> list[str]:
    """The words of a dictionary of fairseq, by number."""
    lines = file.read_text(encoding="utf-8").removesuffix("\n").split("\n")  # a word may have other line breaks
    return BEFORE + [line.rpartition(" ")[0] for line in lines]
