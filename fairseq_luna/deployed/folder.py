"""Files of an exported model: their names, their settings, and whether they are complete and unchanged."""

import json
from pathlib import Path
from typing import Any, NamedTuple

from ..files import fingerprint
from ..usage_error import UsageError

FORMAT = 3  # changes with what this package writes and reads; folders of another format are refused
SETTINGS, SOURCE_WORDS, TARGET_WORDS, PIECES = "settings.json", "source.txt", "target.txt", "pieces.model"
SPECIAL_WORDS = ["<s>", "<pad>", "</s>", "<unk>"]  # of every fairseq dictionary; its file leaves them out
AGAIN = "export the model again"


class ExportSettings(NamedTuple):
    """Content of ``settings.json``, besides its format."""

    starts: list[dict[str, Any]]  # for each graph of the encoder: its file, its shortest and its longest source
    longest_target: int
    pieces: bool  # whether there is a SentencePiece model
    mark: str | None  # subword marker of the source dictionary
    files: dict[str, dict[str, Any]]  # fingerprint of every other file, by name


def read_settings(folder: Path) -> ExportSettings:
    """Read the settings of the exported model in ``folder``, and check its files.

    Raises:
        UsageError: there are no settings, they have another format, or a file is missing or has changed.
    """
    file = folder / SETTINGS
    try:
        settings = json.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(f"{file}: {error.strerror}; give a folder that fairseq-luna export made") from error
    except ValueError as error:
        raise UsageError(f"{file}: is damaged; {AGAIN}") from error
    format_number = settings.pop("format", None) if isinstance(settings, dict) else None
    if format_number != FORMAT:
        raise UsageError(
            f"{folder}: was exported in format {format_number}, this fairseq_luna reads format {FORMAT}; {AGAIN}"
        )
    try:
        read = ExportSettings(**settings)
    except TypeError as error:
        raise UsageError(f"{file}: is damaged; {AGAIN}") from error
    for name, exported in read.files.items():
        check_unchanged(folder / name, exported)
    return read


def check_unchanged(file: Path, exported: dict[str, Any]) -> None:
    """Raises UsageError if ``file`` is not the one that was exported."""
    try:
        current = fingerprint(file)
    except OSError as error:
        raise UsageError(f"{file}: {error.strerror}; {AGAIN}") from error
    if current["bytes"] != exported["bytes"]:
        raise UsageError(f"{file}: has {current['bytes']} bytes, {exported['bytes']} were exported; {AGAIN}")
    if current != exported:
        raise UsageError(f"{file}: has changed since the export; {AGAIN}")


def read_symbols(file: Path) -> list[str]:
    """Read the tokens of a fairseq dictionary, in the order of their indices."""
    lines = file.read_text(encoding="utf-8").removesuffix("\n").split("\n")  # a word may have other line breaks
    return SPECIAL_WORDS + [line.rpartition(" ")[0] for line in lines]
