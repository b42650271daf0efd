"""Downloads that resume, and are used only if their checksum is the published one."""

import hashlib
import http.client
import urllib.error
import urllib.request
from pathlib import Path

from fairseq_luna.command_line import CommandError
from fairseq_luna.progress import progress_bar

_BLOCK = 1 << 20
_SECONDS_OF_SILENCE = 60


def download(url: str, checksum: str, folder: Path) -> Path:
    """The file in ``folder``, downloaded unless it is there; ``<name>.part`` until it is complete.

    Args:
        checksum: ``<algorithm of hashlib>:<hex digest>``.

    Raises:
        CommandError: the connection failed, and the next call resumes; or the file is not the published one.
    """
    target = folder / url.rsplit("/", 1)[-1]
    part = target.with_name(target.name + ".part")
    if not target.exists():
        folder.mkdir(parents=True, exist_ok=True)
        try:
            _fetch(url, part)
        except (urllib.error.URLError, http.client.HTTPException, ConnectionError, TimeoutError) as error:
            hint = f"run the same command again to resume, or put the file into {folder}"
            raise CommandError(f"cannot download {url}: {error}; {hint}", status=1) from error
    found = part if part.exists() else target
    algorithm, expected = checksum.split(":")
    digest = hashlib.new(algorithm, usedforsecurity=False)
    with found.open("rb") as file:
        while block := file.read(_BLOCK):
            digest.update(block)
    if digest.hexdigest() != expected:
        part.unlink(missing_ok=True)
        raise CommandError(f"{target}: its {algorithm} is not the published one of {url}; delete it, and run again")
    return found.replace(target)


def _fetch(url: str, part: Path) -> None:
    """Append what ``part`` lacks, or replace it if the server sends the file from its start."""
    have = part.stat().st_size if part.exists() else 0
    headers = {"User-Agent": "fairseq_luna", "Accept-Encoding": "identity", "Range": f"bytes={have}-"}
    request = urllib.request.Request(url, headers=headers)
    try:
        response = urllib.request.urlopen(request, timeout=_SECONDS_OF_SILENCE)
    except urllib.error.HTTPError as error:
        if error.code == http.HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE:
            return  # nothing is missing; the checksum decides
        raise
    with response:
        resumed = response.status == http.HTTPStatus.PARTIAL_CONTENT
        start = have if resumed else 0
        total = start + int(response.headers["Content-Length"])
        blocks = iter(lambda: response.read(_BLOCK), b"")
        with part.open("ab" if resumed else "wb") as file:
            for block in progress_bar(blocks, part.stem, (total - start) // _BLOCK + 1, unit=" MiB"):
                file.write(block)
    if (stored := part.stat().st_size) < total:
        raise ConnectionError(f"cut off after {stored:,} of {total:,} bytes")
