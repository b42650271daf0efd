"""Small files in the formats of published corpora: parallel text, test sets in SGML, tars, and a server of them."""

import gzip
import html
import io
import random
import tarfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

_ENGLISH = "the old teacher reads a new book and my brother sees three small dogs near that house today"
_GERMAN = "der alte Lehrer liest ein neues Buch und mein Bruder sieht drei kleine Hunde bei diesem Haus heute"


def pairs(count: int, seed: int = 1) -> list[tuple[str, str]]:
    """Pairs of sentences of equal length, with a capital and a full stop."""
    chance = random.Random(seed)
    found = []
    for _ in range(count):
        chosen = [chance.randrange(len(_ENGLISH.split())) for _ in range(chance.randint(4, 12))]
        sides = (" ".join(words.split()[index] for index in chosen) for words in (_ENGLISH, _GERMAN))
        found.append(tuple(side[0].upper() + side[1:] + "." for side in sides))
    return found


def text(lines: Iterable[str]) -> bytes:
    return "".join(f"{line}\n" for line in lines).encode()


def write_pairs(folder: Path, stem: str, of: list[tuple[str, str]], gzipped: bool = False) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for language, lines in zip(("en", "de"), zip(*of, strict=True), strict=True):
        if gzipped:
            (folder / f"{stem}.{language}.gz").write_bytes(gzip.compress(text(lines)))
        else:
            (folder / f"{stem}.{language}").write_bytes(text(lines))


def sgml(sentences: Iterable[str]) -> bytes:
    """A test set of WMT's."""
    segments = (f'<seg id="{number}">{html.escape(text)}</seg>\n' for number, text in enumerate(sentences, 1))
    head = '<srcset setid="newstest">\n<doc docid="d" genre="news" origlang="en">\n'
    return f"{head}{''.join(segments)}</doc>\n</srcset>\n".encode()


def tar(members: dict[str, bytes]) -> bytes:
    """A .tgz with these files."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        for name, content in members.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return packed.getvalue()


@dataclass
class Server:
    """The files of a server, its faults, and the requested ranges."""

    address: str
    files: dict[str, bytes] = field(default_factory=dict)
    ranges: bool = True
    cut_after: int | None = None
    asked: list[tuple[str, str | None]] = field(default_factory=list)


@contextmanager
def serving() -> Iterator[Server]:
    """A local server that supports ranges and can close the connection early."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            wanted = self.headers["Range"]
            server.asked.append((self.path, wanted))
            content = server.files.get(self.path)
            if content is None:
                self.send_error(404)
                return
            start = int(wanted.removeprefix("bytes=").removesuffix("-")) if wanted and server.ranges else 0
            if start >= len(content):
                self.send_error(416)
                return
            self.send_response(206 if wanted and server.ranges else 200)
            if wanted and server.ranges:
                self.send_header("Content-Range", f"bytes {start}-{len(content) - 1}/{len(content)}")
            self.send_header("Content-Length", str(len(content) - start))
            self.end_headers()
            self.wfile.write(content[start:] if server.cut_after is None else content[start : server.cut_after])

        def log_message(self, *_: object) -> None:
            pass

    http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server = Server(f"http://127.0.0.1:{http.server_address[1]}")
    Thread(target=http.serve_forever, args=(0.01,), daemon=True).start()
    try:
        yield server
    finally:
        http.shutdown()
        http.server_close()
