"""Extracting only the wanted files from an untrusted .tgz."""

import gzip
import shutil
import tarfile
import zlib
from collections.abc import Iterable
from pathlib import Path, PurePosixPath

from fairseq_luna.commands.command_line import CommandError

# Europarl, the largest text here, has a third of a GiB.
LARGEST_MEMBER = 4 << 30
_BLOCK = 1 << 20
_CORRUPT = (tarfile.ReadError, EOFError, zlib.error, gzip.BadGzipFile)


def extract(archive: Path, wanted: Iterable[str], folder: Path, *, largest: int = LARGEST_MEMBER) -> None:
    """Write each wanted member to ``folder`` under its base name.

    Raises:
        CommandError: a member's path leads out of the archive; a wanted member is missing, not a plain file or
            larger than ``largest`` bytes; or the archive is corrupt. Nothing outside ``folder`` is written.
    """
    missing = set(wanted)
    folder.mkdir(parents=True, exist_ok=True)
    try:
        with gzip.open(archive) as unzipped, tarfile.open(fileobj=unzipped, mode="r:") as tar:
            for member in tar:
                name = _safe_name(archive, member)
                if name in missing:
                    _write(archive, tar, member, folder / PurePosixPath(name).name, largest)
                    missing.remove(name)
            # gzip checks its checksum at the end; tarfile stops at a damaged header as if it were the end.
            while unzipped.read(_BLOCK):
                pass
    except _CORRUPT as error:
        raise CommandError(f"{archive}: corrupt or incomplete ({error}); delete it and get it again") from error
    if missing:
        raise CommandError(f"{archive}: has no {', '.join(sorted(missing))}; is it the right file?")


def _safe_name(archive: Path, member: tarfile.TarInfo) -> str:
    path = PurePosixPath(member.name)
    if path.is_absolute() or ".." in path.parts:
        raise CommandError(f"{archive}: refused, its member {member.name} leads out of the folder")
    return str(path)


def _write(archive: Path, tar: tarfile.TarFile, member: tarfile.TarInfo, target: Path, largest: int) -> None:
    if not member.isreg():
        raise CommandError(f"{archive}: refused, its member {member.name} is a link or another special file")
    if member.size > largest:
        raise CommandError(f"{archive}: refused, its member {member.name} has {member.size:,} bytes")
    try:
        tarfile.data_filter(member, str(target.parent))
    except tarfile.FilterError as error:
        raise CommandError(f"{archive}: refused: {error}") from error
    source = tar.extractfile(member)
    assert source is not None  # it is a plain file
    with source, target.open("wb") as file:
        shutil.copyfileobj(source, file, _BLOCK)
    if target.stat().st_size != member.size:
        raise EOFError(f"{member.name} ends early")
