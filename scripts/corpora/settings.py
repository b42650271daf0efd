"""The settings of an output folder; a later run with other settings is refused."""

import json
from pathlib import Path
from typing import Any

from shared.command import CommandError
from shared.steps import complete

FILE = "settings.json"
# What is made with the setting "size" first. Until then another size may be given, in place of one that was refused.
_PIECES = ("work/sentencepiece", "joint.model", "codes")


def check(folder: Path, wanted: dict[str, Any]) -> None:
    """Raises CommandError if ``folder`` was made with another value of one of ``wanted``."""
    try:
        begun = json.loads((folder / FILE).read_text(encoding="utf-8"))
    except FileNotFoundError:
        return
    except ValueError as error:
        raise CommandError(f"{folder / FILE}: unreadable ({error}); use another --out") from error
    has_pieces = any((folder / name).exists() for name in _PIECES)
    for name, value in json.loads(json.dumps(wanted)).items():
        if begun.get(name) != value and (has_pieces or name != "size"):
            was = _short(begun.get(name))
            raise CommandError(f"--out {folder} was made with {name} {was}, not {_short(value)}: use another --out")


def keep(folder: Path, wanted: dict[str, Any]) -> None:
    """Record the settings of ``folder``, after :func:`check`."""
    folder.mkdir(parents=True, exist_ok=True)
    with complete(folder / FILE) as unfinished:
        unfinished.write_text(json.dumps(wanted, indent=2) + "\n", encoding="utf-8")


def _short(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)
