"""Only the wanted members of a tar are extracted, and nothing is written outside the folder."""

import io
import tarfile
from pathlib import Path

import pytest

from corpora.archives import extract
from corpus_files import tar
from fairseq_luna.usage_error import UsageError

WANTED = ["training/news.de-en.en", "training/news.de-en.de"]


def packed(tmp_path: Path, content: bytes) -> Path:
    archive = tmp_path / "archive.tgz"
    archive.write_bytes(content)
    return archive


def test_only_the_wanted_members_come_out(tmp_path: Path) -> None:
    archive = packed(tmp_path, tar({f"./{WANTED[0]}": b"a\n", "training/news.fr-en.en": b"b\n", WANTED[1]: b"c\n"}))
    extract(archive, WANTED, tmp_path / "out")
    written = {path.name: path.read_bytes() for path in (tmp_path / "out").iterdir()}
    assert written == {"news.de-en.en": b"a\n", "news.de-en.de": b"c\n"}


@pytest.mark.parametrize("name", ["../escaped", "training/../../escaped", "/tmp/escaped"])
def test_a_member_that_leads_out_is_refused(tmp_path: Path, name: str) -> None:
    archive = packed(tmp_path, tar({name: b"x", **{wanted: b"y" for wanted in WANTED}}))
    with pytest.raises(UsageError, match=rf"archive\.tgz: refused, its member {name} leads out") as problem:
        extract(archive, WANTED, tmp_path / "deep" / "out")
    assert "\n" not in str(problem.value)
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["archive.tgz", "deep", "out"]


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE], ids=["symlink", "link", "fifo"])
def test_a_wanted_member_that_is_not_a_plain_file_is_refused(tmp_path: Path, kind: bytes) -> None:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        member = tarfile.TarInfo(WANTED[0])
        member.type, member.linkname = kind, "/etc/passwd"
        archive.addfile(member)
    with pytest.raises(UsageError, match=f"its member {WANTED[0]} is a link or another special file"):
        extract(packed(tmp_path, buffer.getvalue()), WANTED[:1], tmp_path / "out")
    assert list((tmp_path / "out").iterdir()) == []


def test_a_member_that_would_fill_the_disk_is_refused(tmp_path: Path) -> None:
    archive = packed(tmp_path, tar({WANTED[0]: b"x" * 1001}))
    with pytest.raises(UsageError, match="has 1,001 bytes"):
        extract(archive, WANTED[:1], tmp_path / "out", largest=1000)
    assert list((tmp_path / "out").iterdir()) == []


def test_missing_members_are_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=f"archive.tgz: has no {WANTED[1]}"):
        extract(packed(tmp_path, tar({WANTED[0]: b"x"})), WANTED, tmp_path / "out")


@pytest.mark.parametrize("damage", ["half", "text", "flipped"])
def test_a_corrupt_archive_is_reported_in_one_line(tmp_path: Path, damage: str) -> None:
    lines = b"".join(b"%d %d\n" % (number, number * number) for number in range(20000))
    whole = tar({WANTED[0]: lines, WANTED[1]: lines})
    middle = len(whole) // 2
    damaged = {
        "half": whole[:middle],
        "text": b"<html>not found</html>",
        "flipped": whole[:middle] + bytes(200) + whole[middle + 200 :],
    }[damage]
    with pytest.raises(UsageError, match=r"archive\.tgz: corrupt or incomplete") as problem:
        extract(packed(tmp_path, damaged), WANTED, tmp_path / "out")
    assert "\n" not in str(problem.value)
