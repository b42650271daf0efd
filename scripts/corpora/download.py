"""Downloads that resume, and are used only if their checksum is right."""

import hashlib
import http.client
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path

from tqdm import tqdm

from corpora.catalogue import Remote
from fairseq_luna.commands.command_line import CommandError

_BLOCK = 1 << 20
_SECONDS_OF_SILENCE = 60


class _Failed(Exception):
    """This address failed; another may work."""


def download(remote: Remote, folder: Path) -> Path:
    """The file in ``folder``, downloaded unless it exists.

    It is called ``<name>.part`` until it is complete and its checksum right; the next call resumes that one.

    Raises:
        CommandError: the download failed from all addresses.
    """
    target = folder / remote.name
    if target.exists():
        return target
    folder.mkdir(parents=True, exist_ok=True)
    part = target.with_name(target.name + ".part")
    failures = []
    for url in remote.urls:
        try:
            _fetch(url, part, remote.size)
            _verify(part, remote)
        except _Failed as failure:
            failures.append(f"{url}: {failure}")
            continue
        part.rename(target)
        return target
    raise CommandError(
        f"cannot download {'; '.join(failures)}. If you have the files, give their folder with --from-dir"
    )


def _fetch(url: str, part: Path, size: int | None) -> None:
    """Append the missing bytes to ``part``."""
    have = part.stat().st_size if part.exists() else 0
    if size is not None and have == size:
        return
    if size is not None and have > size:
        part.unlink()
        have = 0
    request = urllib.request.Request(url, headers={"User-Agent": "fairseq_luna", "Accept-Encoding": "identity"})
    if have:
        request.add_header("Range", f"bytes={have}-")
    try:
        with urllib.request.urlopen(request, timeout=_SECONDS_OF_SILENCE) as response:
            _store(response, part, have, size)
    except urllib.error.HTTPError as error:
        if error.code == http.HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE:
            return  # nothing is missing; the checksum decides
        raise _Failed(f"HTTP {error.code} {error.reason}") from error
    except urllib.error.URLError as error:
        raise _Failed(f"no connection ({error.reason})") from error
    except (http.client.HTTPException, ConnectionError, TimeoutError) as error:
        raise _Failed(f"cut off ({error or type(error).__name__})") from error


def _store(response: http.client.HTTPResponse, part: Path, have: int, size: int | None) -> None:
    """Append the response to ``part``, or replace it if the server sends the file from its start."""
    resumed = response.status == http.HTTPStatus.PARTIAL_CONTENT
    start = have if resumed else 0
    if resumed and not (response.headers["Content-Range"] or "").startswith(f"bytes {have}-"):
        raise _Failed(f"asked from byte {have}, it sent {response.headers['Content-Range']}")
    announced = response.headers["Content-Length"]
    total = size if announced is None else start + int(announced)
    bar = tqdm(desc=part.stem, total=total, initial=start, unit="B", unit_scale=True, disable=None)
    with part.open("ab" if resumed else "wb") as file, bar:
        for block in _blocks(response.read):
            file.write(block)
            bar.update(len(block))
    stored = part.stat().st_size
    if total is not None and stored < total:
        raise _Failed(f"cut off after {stored:,} of {total:,} bytes")


def _verify(part: Path, remote: Remote) -> None:
    """Delete ``part`` unless it is the published file."""
    algorithm, expected = remote.checksum.split(":")
    found = hashlib.new(algorithm, usedforsecurity=False)
    with part.open("rb") as file:
        for block in _blocks(file.read):
            found.update(block)
    if found.hexdigest() != expected:
        part.unlink()
        raise _Failed(f"its {algorithm} is not the published one ({found.hexdigest()}, not {expected})")


def _blocks(read: Callable[[int], bytes]):
    return iter(lambda: read(_BLOCK), b"")
