"""Downloads resume, and are used only after their checksum is verified."""

import hashlib
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from corpora.download import download
from corpus_files import Server, serving
from fairseq_luna.usage_error import UsageError

CONTENT = bytes(range(256)) * 40
CHECKSUM = "sha256:" + hashlib.sha256(CONTENT).hexdigest()
WRONG = "sha1:" + hashlib.sha1(b"else").hexdigest()


@pytest.fixture
def server() -> Iterator[Server]:
    with serving() as server:
        server.files["/corpus.tgz"] = CONTENT
        yield server


def get(server: Server, folder: Path, checksum: str = CHECKSUM) -> Path:
    return download(f"{server.address}/corpus.tgz", checksum, folder)


def test_a_file_is_downloaded_once_and_verified_each_time(server: Server, tmp_path: Path) -> None:
    for _ in range(2):
        assert get(server, tmp_path / "new").read_bytes() == CONTENT
    assert len(server.asked) == 1
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["corpus.tgz"]
    (tmp_path / "new" / "corpus.tgz").write_bytes(CONTENT[1:])
    with pytest.raises(UsageError, match=r"new/corpus\.tgz: its sha256 is not the published one of http.*; delete it"):
        get(server, tmp_path / "new")


@pytest.mark.parametrize("ranges", [True, False])
@pytest.mark.parametrize("have", [700, len(CONTENT)], ids=["a part", "all"])
def test_an_incomplete_download_resumes(server: Server, tmp_path: Path, ranges: bool, have: int) -> None:
    server.ranges = ranges
    (tmp_path / "corpus.tgz.part").write_bytes(CONTENT[:have])
    assert get(server, tmp_path).read_bytes() == CONTENT
    assert server.asked == [("/corpus.tgz", f"bytes={have}-")]


def test_an_interrupted_download_is_kept_but_not_used(server: Server, tmp_path: Path) -> None:
    server.cut_after = 1000
    with pytest.raises(
        UsageError, match=r"corpus\.tgz: cut off after 1,000 of 10,240 bytes; run the same command again"
    ):
        get(server, tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["corpus.tgz.part"]
    server.cut_after = None
    assert get(server, tmp_path).read_bytes() == CONTENT
    assert server.asked[-1] == ("/corpus.tgz", "bytes=1000-")


def test_another_file_is_deleted(server: Server, tmp_path: Path) -> None:
    for begun, checksum in ((b"", WRONG), (b"x" * 700, CHECKSUM)):
        (tmp_path / "corpus.tgz.part").write_bytes(begun)
        with pytest.raises(UsageError, match="its sha"):
            get(server, tmp_path, checksum)
        assert list(tmp_path.iterdir()) == []


def test_what_cannot_be_reached_is_named(server: Server, tmp_path: Path) -> None:
    del server.files["/corpus.tgz"]
    with pytest.raises(UsageError, match=rf"cannot download {server.address}/corpus\.tgz: HTTP Error 404"):
        get(server, tmp_path)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    with pytest.raises(UsageError, match=rf"127\.0\.0\.1:{port}/a\.tgz: .*; run .* or put the file into ") as problem:
        download(f"http://127.0.0.1:{port}/a.tgz", CHECKSUM, tmp_path)
    assert "\n" not in str(problem.value)
