"""Record of the settings and input files that an output folder was made from; a later run with others is refused."""

import json
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

from ...files import atomic_write, fingerprint, remove
from ...usage_error import UsageError

FILE = "settings.json"
# Files that depend on the settings _SIZES. Until one exists, another size may be given, after one that was refused.
_PIECES = ("work/sentencepiece", "joint.model", "codes")
_SIZES = ("size", "--vocabulary-size")
_MADE = (
    *(
        *_PIECES,
        "joint.vocab",
        "work/raw",
        "work/examples",
        "work/models",
        "work/training",
        "work/pieces",
        "work/clean",
    ),
    *("work/dictionary", "work/known", "work/held_out", "work/unknown.json"),
    *("reference", "bin", "corpus", "sentencepiece", "data-bin"),
)
_FINGERPRINT = {"name", "bytes", "sha256"}


def named_fingerprint(path: Path, inside: Iterable[Path] | None = None) -> dict[str, Any]:
    """Name and :func:`.fingerprint` of a file, or of a folder by the files ``inside`` it."""
    return {"name": path.name, **fingerprint(path, inside)}


def is_begun(folder: Path) -> bool:
    """Whether anything in ``folder`` was made from text."""
    return any((folder / name).exists() for name in _MADE)


def check_provenance(folder: Path, requested: dict[str, Any]) -> None:
    """Raises UsageError if ``folder``, the value of --out, was made with a value that differs from ``wanted``."""
    try:
        recorded = _read_provenance(folder)
    except FileNotFoundError as error:
        if is_begun(folder):
            raise UsageError(
                f"--out {folder} has no {FILE}, which would say what it was made from: use another --out"
            ) from error
        return
    has_pieces = any((folder / name).exists() for name in _PIECES)
    for name, value in json.loads(json.dumps(requested)).items():
        # A setting that earlier versions did not have is not recorded, as if it were None.
        if recorded.get(name) != value and (has_pieces or name not in _SIZES):
            where, recorded_value, requested_value = _difference(recorded.get(name), value)
            shown = f"{name} ({', '.join(where)})" if where else name
            old, new = _abbreviate(recorded_value), _abbreviate(requested_value)
            raise UsageError(f"--out {folder} was made with {shown} {old}, not {new}: use another --out")


def record_provenance(folder: Path, requested: dict[str, Any]) -> None:
    """Record the settings of ``folder``, after :func:`check_provenance`.

    Raises:
        UsageError: another program has written a file of this name.
    """
    folder.mkdir(parents=True, exist_ok=True)
    if (folder / FILE).exists() and not _read_provenance(folder).keys() <= requested.keys():
        raise UsageError(f"{folder / FILE}: was written by another program; use another --out")
    with atomic_write(folder / FILE) as unfinished:
        unfinished.write_text(json.dumps(requested, indent=2) + "\n", encoding="utf-8")


def _read_provenance(folder: Path) -> dict[str, Any]:
    """Read the record of :func:`record_provenance`.

    Raises:
        UsageError: the file is not such a record.
        FileNotFoundError: there is no file.
    """
    try:
        return dict(json.loads((folder / FILE).read_text(encoding="utf-8")))
    except (TypeError, ValueError) as error:
        raise UsageError(f"{folder / FILE}: unreadable ({error}); use another --out") from error


def forget(folder: Path) -> None:
    """Remove everything that was made in ``folder``."""
    for name in (FILE, *_MADE):
        remove(folder / name)
    with suppress(OSError):  # they are not empty
        (folder / "work").rmdir()
        folder.rmdir()


def _difference(recorded_value: Any, requested_value: Any) -> tuple[list[str], Any, Any]:
    """The place where two values differ first, and their parts at this place."""
    parts: Iterable[Any] = ()
    if (
        isinstance(recorded_value, dict)
        and isinstance(requested_value, dict)
        and recorded_value.keys() == requested_value.keys() != _FINGERPRINT
    ):
        parts = recorded_value
    elif (
        isinstance(recorded_value, list)
        and isinstance(requested_value, list)
        and len(recorded_value) == len(requested_value)
    ):
        parts = range(len(recorded_value))
    for part in parts:
        if recorded_value[part] != requested_value[part]:
            where, *values = _difference(recorded_value[part], requested_value[part])
            return [str(part + 1 if isinstance(part, int) else part), *where], *values
    return [], recorded_value, requested_value


def _abbreviate(value: Any) -> str:
    if isinstance(value, dict) and value.keys() == _FINGERPRINT:
        return f"{value['name']} of {value['bytes']:,} bytes and SHA-256 {value['sha256'][:12]}"
    return value if isinstance(value, str) else json.dumps(value)
