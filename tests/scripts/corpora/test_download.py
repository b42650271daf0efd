"""Downloads resume, and are used only after their checksum is verified."""

import hashlib
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from corpora.catalogue import Remote
from corpora.download import download
from corpus_files import Server, serving
from fairseq_luna.commands.command_line import command
from fairseq_luna.usage_error import UsageError

CONTENT = bytes(range(256)) * 40
CHECKSUM = "sha256:" + hashlib.sha256(CONTENT).hexdigest()


@pytest.fixture
def server() -> Iterator[Server]:
    with serving() as server:
        server.files["/corpus.tgz"] = CONTENT
        yield server


def remote(server: Server, checksum: str = CHECKSUM, size: int | None = len(CONTENT)) -> Remote:
    return Remote((f"{server.address}/corpus.tgz",), checksum, size)


def test_a_file_is_downloaded_once(server: Server, tmp_path: Path) -> None:
    for _ in range(2):
        assert download(remote(server), tmp_path / "new").read_bytes() == CONTENT
    assert server.asked == [("/corpus.tgz", None)]
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["corpus.tgz"]


@pytest.mark.parametrize("size", [len(CONTENT), None], ids=["size-known", "size-unknown"])
def test_an_incomplete_download_resumes(server: Server, tmp_path: Path, size: int | None) -> None:
    (tmp_path / "corpus.tgz.part").write_bytes(CONTENT[:700])
    assert download(remote(server, size=size), tmp_path).read_bytes() == CONTENT
    assert server.asked == [("/corpus.tgz", "bytes=700-")]


def test_a_server_without_ranges_sends_the_whole_file(server: Server, tmp_path: Path) -> None:
    server.ranges = False
    (tmp_path / "corpus.tgz.part").write_bytes(CONTENT[:700])
    assert download(remote(server), tmp_path).read_bytes() == CONTENT


@pytest.mark.parametrize("size", [len(CONTENT), None], ids=["size-known", "size-unknown"])
def test_a_complete_part_only_needs_its_checksum(server: Server, tmp_path: Path, size: int | None) -> None:
    (tmp_path / "corpus.tgz.part").write_bytes(CONTENT)
    assert download(remote(server, size=size), tmp_path).read_bytes() == CONTENT


def test_an_interrupted_download_is_kept_but_not_used(server: Server, tmp_path: Path) -> None:
    server.cut_after = 1000
    with pytest.raises(UsageError, match=r"corpus\.tgz: cut off after 1,000 of 10,240 bytes"):
        download(remote(server), tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["corpus.tgz.part"]
    server.cut_after = None
    assert download(remote(server), tmp_path).read_bytes() == CONTENT
    assert server.asked[-1] == ("/corpus.tgz", "bytes=1000-")


@pytest.mark.parametrize("begun", [b"", b"another"], ids=["fresh", "resumed"])
def test_a_file_with_a_wrong_checksum_is_deleted(server: Server, tmp_path: Path, begun: bytes) -> None:
    wrong = "sha256:" + hashlib.sha256(b"else").hexdigest()
    if begun:
        (tmp_path / "corpus.tgz.part").write_bytes(begun)
    with pytest.raises(UsageError, match="its sha256 is not the published one"):
        download(remote(server, wrong), tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_part_of_another_file_is_not_used(server: Server, tmp_path: Path) -> None:
    (tmp_path / "corpus.tgz.part").write_bytes(b"x" * 700)
    with pytest.raises(UsageError, match="its sha256 is not"):
        download(remote(server), tmp_path)
    assert download(remote(server), tmp_path).read_bytes() == CONTENT


def test_the_next_address_is_tried(server: Server, tmp_path: Path) -> None:
    mirrored = Remote((f"{server.address}/gone/corpus.tgz", f"{server.address}/corpus.tgz"), CHECKSUM)
    assert download(mirrored, tmp_path).read_bytes() == CONTENT
    assert [path for path, _ in server.asked] == ["/gone/corpus.tgz", "/corpus.tgz"]


def test_an_address_without_the_file_is_named(server: Server, tmp_path: Path) -> None:
    del server.files["/corpus.tgz"]
    with pytest.raises(UsageError, match=rf"{server.address}/corpus\.tgz: HTTP 404 .* with --from-dir"):
        download(remote(server), tmp_path)


def test_without_a_network_the_address_is_named(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    with pytest.raises(UsageError, match=rf"127\.0\.0\.1:{port}/a\.tgz: no connection .* with --from-dir") as problem:
        download(Remote((f"http://127.0.0.1:{port}/a.tgz",), CHECKSUM), tmp_path)
    assert "\n" not in str(problem.value)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no device that is always full")
def test_a_full_disk_is_reported(server: Server, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "corpus.tgz.part").symlink_to("/dev/full")
    assert command(lambda _: download(remote(server), tmp_path))() == 1
    assert capsys.readouterr().err.strip() == (
        "test_download.py: no space left on the disk; free some and run the same command again"
    )
    assert not (tmp_path / "corpus.tgz").exists()
