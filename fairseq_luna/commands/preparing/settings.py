"""What an output folder was made from: its settings, and its input files by content. Anything else is refused later."""

import hashlib
import json
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

from ...usage_error import UsageError
from ..steps import complete, remove

FILE = "settings.json"
# What is made with the settings _SIZES first. Until then another size may be given, in place of one that was refused.
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
_BLOCK = 1 << 20


def fingerprint(path: Path, inside: Iterable[Path] | None = None) -> dict[str, Any]:
    """Name, bytes and hash of a file; or of a folder, by the files ``inside`` it that are read, in their order."""
    content, size = hashlib.sha256(), 0
    for file in [path] if inside is None else inside:
        if inside is not None:
            content.update(f"{file.relative_to(path)}\0{file.stat().st_size}\0".encode())
        with file.open("rb") as opened:
            for block in iter(lambda: opened.read(_BLOCK), b""):
                content.update(block)
                size += len(block)
    return {"name": path.name, "bytes": size, "sha256": content.hexdigest()}


def is_begun(folder: Path) -> bool:
    """Whether anything in ``folder`` was made from text."""
    return any((folder / name).exists() for name in _MADE)


def check(folder: Path, wanted: dict[str, Any]) -> None:
    """Raises UsageError if ``folder``, the value of --out, was made with another value of one of ``wanted``."""
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


def keep(folder: Path, wanted: dict[str, Any]) -> None:
    """Record the settings of ``folder``, after :func:`check`. Raises UsageError if another program has such a file."""
    folder.mkdir(parents=True, exist_ok=True)
    if (folder / FILE).exists() and not _recorded(folder).keys() <= wanted.keys():
        raise UsageError(f"{folder / FILE}: was written by another program; use another --out")
    with complete(folder / FILE) as unfinished:
        unfinished.write_text(json.dumps(wanted, indent=2) + "\n", encoding="utf-8")


def _recorded(folder: Path) -> dict[str, Any]:
    """What :func:`keep` wrote. Raises UsageError if the file is none of its, FileNotFoundError if there is none."""
    try:
        return dict(json.loads((folder / FILE).read_text(encoding="utf-8")))
    except (TypeError, ValueError) as error:
        raise UsageError(f"{folder / FILE}: unreadable ({error}); use another --out") from error


def forget(folder: Path) -> None:
    """Remove all that was made in ``folder``, where nothing was begun before."""
    for name in (FILE, *_MADE):
        remove(folder / name)
    with suppress(OSError):  # they hold something else
        (folder / "work").rmdir()
        folder.rmdir()


def _difference(was: Any, asked: Any) -> tuple[list[str], Any, Any]:
    """Where two different values differ first, and the parts of both there."""
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
