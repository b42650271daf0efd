"""The files of an exported model."""

import json
from pathlib import Path
from typing import Any

from ..usage_error import UsageError

FORMAT = 2
SETTINGS, SOURCE_WORDS, TARGET_WORDS, PIECES = "settings.json", "source.txt", "target.txt", "pieces.model"
BEFORE = ["<s>", "<pad>", "</s>", "<unk>"]  # the words of every dictionary of fairseq that its file leaves out


def settings_of(folder: Path) -> dict[str, Any]:
    """The settings in ``folder``.

    Raises:
        UsageError: there are none, or they are of another version of this package.
    """
    file = folder / SETTINGS
    try:
        settings = json.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(f"{file}: {error.strerror}; give a folder that scripts/export_translator.py made") from error
    except ValueError as error:
        raise UsageError(f"{file}: is damaged; export the model again") from error
    found = settings.get("format") if isinstance(settings, dict) else None
    if found != FORMAT:
        raise UsageError(f"{folder}: has format {found}, this fairseq_luna reads {FORMAT}; export the model again")
    return settings


def words_of(file: Path) -> list[str]:
    """The words of a dictionary of fairseq, by number.

    Raises:
        UsageError: the file cannot be read.
    """
    try:
        lines = file.read_text(encoding="utf-8").removesuffix("\n").split("\n")  # a word may have other line breaks
    except OSError as error:
        raise UsageError(f"{file}: {error.strerror}; export the model again") from error
    except UnicodeDecodeError as error:
        raise UsageError(f"{file}: is damaged; export the model again") from error
    return BEFORE + [line.rpartition(" ")[0] for line in lines]
