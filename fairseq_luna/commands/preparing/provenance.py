"""Record of the settings and input files that an output folder was made from; a later run with others is refused."""

import json
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

from ...files import complete, fingerprint, remove
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


def check_provenance(folder: Path, wanted: dict[str, Any]) -> None:
    """Raises UsageError if ``folder``, the value of --out, was made with a value that differs from ``wanted``."""
    try:
        begun = _recorded(folder)
    except FileNotFoundError as error:
        if is_begun(folder):
            raise UsageError(
                f"--out {folder} has no {FILE}, which would say what it was made from: use another --out"
            ) from error
        return
    has_pieces = any((folder / name).exists() for name in _PIECES)
    for name, value in json.loads(json.dumps(wanted)).items():
        # A setting that earlier versions did not have is not recorded, as if it were None.
        if begun.get(name) != value and (has_pieces or name not in _SIZES):
            where, was, asked = _difference(begun.get(name), value)
            shown = f"{name} ({', '.join(where)})" if where else name
            raise UsageError(
                f"--out {folder} was made with {shown} {_short(was)}, not {_short(asked)}: use another --out"
            )


def record_provenance(folder: Path, wanted: dict[str, Any]) -> None:
    """Record the settings of ``folder``, after :func:`check_provenance`.

    Raises:
        UsageError: another program has written a file of this name.
    """
    folder.mkdir(parents=True, exist_ok=True)
    if (folder / FILE).exists() and not _recorded(folder).keys() <= wanted.keys():
        raise UsageError(f"{folder / FILE}: was written by another program; use another --out")
    with complete(folder / FILE) as unfinished:
        unfinished.write_text(json.dumps(wanted, indent=2) + "\n", encoding="utf-8")


def _recorded(folder: Path) -> dict[str, Any]:
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


def _difference(was: Any, asked: Any) -> tuple[list[str], Any, Any]:
    """The place where two values differ first, and their parts at this place."""
    parts: Iterable[Any] = ()
    if isinstance(was, dict) and isinstance(asked, dict) and was.keys() == asked.keys() != _FINGERPRINT:
        parts = was
    elif isinstance(was, list) and isinstance(asked, list) and len(was) == len(asked):
        parts = range(len(was))
    for part in parts:
        if was[part] != asked[part]:
            where, *values = _difference(was[part], asked[part])
            return [str(part + 1 if isinstance(part, int) else part), *where], *values
    return [], was, asked


def _short(value: Any) -> str:
    if isinstance(value, dict) and value.keys() == _FINGERPRINT:
        return f"{value['name']} of {value['bytes']:,} bytes and SHA-256 {value['sha256'][:12]}"
    return value if isinstance(value, str) else json.dumps(value)
