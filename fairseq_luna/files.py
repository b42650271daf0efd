"""Atomic writes, file locks and fingerprints."""

import fcntl
import hashlib
import os
import shutil
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from .usage_error import UsageError

UNFINISHED = ".unfinished"  # after the name of a file or folder that is being written
LOCK = ".lock"  # after the name of a file or folder that one process at a time makes
_BLOCK = 1 << 20


@contextmanager
def atomic_write(target: Path) -> Iterator[Path]:
    """The path to write a file or a folder to, renamed to ``target`` at the end, or removed after an exception.

    An existing file ``target`` is replaced.

    Raises:
        UsageError: another process is writing ``target``.
    """
    unfinished = target.with_name(target.name + UNFINISHED)
    with locked(unfinished) as alone:
        if not alone:
            raise UsageError(f"{target}: another process is making it; wait until it has finished, then try again")
        remove(unfinished)  # of a run that was killed
        with renamed_when_complete(unfinished, target):
            yield unfinished


@contextmanager
def renamed_when_complete(unfinished: Path, target: Path) -> Iterator[None]:
    """Rename ``unfinished`` to ``target`` at the end, or remove it after an exception."""
    try:
        yield
        unfinished.replace(target)
    finally:
        remove(unfinished)


@contextmanager
def locked(path: Path, *, wait: bool = False) -> Iterator[bool]:
    """Lock ``path`` for this process and yield True, or yield False if another process has it.

    ``wait`` waits for the other process instead.

    The lock is a file beside ``path``, and ends with the process, even if it is killed. On a file system without locks
    every process gets it.
    """
    file = path.with_name(path.name + LOCK)
    while True:
        with file.open("ab") as opened:
            try:
                fcntl.flock(opened, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
            except BlockingIOError:
                yield False
                return
            except OSError:  # this file system has no locks
                pass
            # The previous process may have removed the file between the two calls: then its lock excludes nobody.
            if not _is_still(file, opened.fileno()):
                continue
            try:
                yield True
            finally:
                file.unlink(missing_ok=True)
            return


def _is_still(file: Path, opened: int) -> bool:
    with suppress(FileNotFoundError):
        return os.path.samestat(file.stat(), os.fstat(opened))
    return False


def make_unless_present(description: str, target: Path, make: Callable[[Path], object]) -> None:
    """Make the file or folder ``target`` by ``make(path)`` unless it exists, and print whether it is made or reused."""
    if target.exists():
        print(f"{description}: reusing {target}", flush=True)
        return
    print(f"{description}: making {target}", flush=True)
    target.parent.mkdir(parents=True, exist_ok=True)
    with atomic_write(target) as unfinished:
        make(unfinished)


def remove(path: Path) -> None:
    """Delete a file or a folder if it exists."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def fingerprint(path: Path, inside: Iterable[Path] | None = None) -> dict[str, Any]:
    """Size and SHA-256 of a file, or of a folder by the files ``inside`` it that are read, in their order."""
    content, size = hashlib.sha256(), 0
    for file in [path] if inside is None else inside:
        if inside is not None:
            content.update(f"{file.relative_to(path)}\0{file.stat().st_size}\0".encode())
        with file.open("rb") as opened:
            for block in iter(lambda: opened.read(_BLOCK), b""):
                content.update(block)
                size += len(block)
    return {"bytes": size, "sha256": content.hexdigest()}


def check_output(output: Path, inputs: Iterable[Path], *, force: bool, flag: str = "--output") -> None:
    """Raises UsageError if ``output``, the value of ``flag``, cannot be written, or would replace something."""
    if output.resolve() in {path.resolve() for path in inputs}:
        raise UsageError(f"{flag} {output}: that is an input; give another name")
    if not output.absolute().parent.is_dir():
        raise UsageError(f"{flag} {output}: there is no folder {output.parent}")
    if output.exists() and not (output.is_dir() or output.is_file()):
        raise UsageError(f"{flag} {output}: is a pipe or a device, and would be replaced; name a file")
    if output.is_dir() or (output.exists() and not force):
        raise UsageError(f"{flag} {output}: it exists; give another name{'' if output.is_dir() else ', or --force'}")


def save_checkpoint(state: dict[str, Any], output: Path) -> None:
    """Write the checkpoint ``output`` so that it is never incomplete. Raises UsageError if it cannot be written."""
    import torch  # takes seconds; wrong flags are refused before that

    try:
        with atomic_write(output) as unfinished:
            torch.save(state, unfinished)
    except (OSError, RuntimeError) as error:  # torch raises RuntimeError when the disk is full
        raise UsageError(f"--output {output}: {next(iter(str(error).splitlines()), error)}") from error
