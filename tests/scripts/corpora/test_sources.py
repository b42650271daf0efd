"""Valid folders of the user, and the names of missing files."""

from pathlib import Path

import pytest

from corpora import wmt14
from corpora.sources import File, Text, find, unpack
from corpus_files import pairs, sgml, tar, write_pairs

TRAIN, VALID, TEST = wmt14.SPLITS


def test_the_published_sources_are_complete() -> None:
    remotes = [place.remote for split in wmt14.SPLITS for part in split.parts for s in part.sources for place in s]
    assert all(len(remote.urls) >= 2 for remote in remotes)
    lengths = {"md5": 32, "sha1": 40, "sha256": 64}
    for remote in remotes:
        algorithm, digest = remote.checksum.split(":")
        assert len(digest) == lengths[algorithm]


@pytest.mark.parametrize("gzipped", [False, True], ids=["plain", "gz"])
@pytest.mark.parametrize("stem", ["valid", "dev", "newstest2013"])
def test_plain_files(tmp_path: Path, stem: str, gzipped: bool) -> None:
    write_pairs(tmp_path, stem, pairs(2), gzipped)
    end = ".gz" if gzipped else ""
    expected = Text(File(tmp_path / f"{stem}.en{end}"), File(tmp_path / f"{stem}.de{end}"))
    assert find(VALID, tmp_path) == ([expected], [])


def test_one_language_alone_is_not_enough(tmp_path: Path) -> None:
    (tmp_path / "valid.en").touch()
    texts, lacking = find(VALID, tmp_path)
    assert texts == []
    assert lacking == ["newstest2013 (test.tgz or dev.tgz, or valid.en and valid.de)"]


def test_archives_and_extracted_members_are_found_by_name(tmp_path: Path) -> None:
    (tmp_path / "de-en.tgz").touch()
    write_pairs(tmp_path, "commoncrawl.de-en", pairs(2))
    write_pairs(tmp_path / "training", "news-commentary-v9.de-en", pairs(2), gzipped=True)
    texts, lacking = find(TRAIN, tmp_path)
    assert lacking == []
    assert [text.en for text in texts] == [
        File(tmp_path / "de-en.tgz", "europarl-v7.de-en.en"),
        File(tmp_path / "commoncrawl.de-en.en"),
        File(tmp_path / "training" / "news-commentary-v9.de-en.en.gz"),
    ]


def test_an_archive_is_read_where_one_member_alone_is_extracted(tmp_path: Path) -> None:
    (tmp_path / "de-en.tgz").touch()
    (tmp_path / "europarl-v7.de-en.en").touch()
    texts, _ = find(TRAIN, tmp_path)
    assert [file.member for file in texts[0]] == ["europarl-v7.de-en.en", "europarl-v7.de-en.de"]


def test_every_part_that_is_missing_is_named(tmp_path: Path) -> None:
    (tmp_path / "de-en.tgz").touch()
    _, lacking = find(TRAIN, tmp_path)
    assert [line.split(" (")[0] for line in lacking] == ["Common Crawl", "News Commentary v9"]


def test_both_sides_are_extracted_from_one_archive(tmp_path: Path) -> None:
    names = ("test-full/newstest2014-deen-src.en.sgm", "test-full/newstest2014-deen-ref.de.sgm")
    (tmp_path / "test-full.tgz").write_bytes(tar({name: sgml(["x"]) for name in names}))
    (text,), _ = find(TEST, tmp_path)
    english, german = unpack(text, tmp_path / "extracted")
    assert english.read_bytes() == german.read_bytes() == sgml(["x"])
    assert english.parent == tmp_path / "extracted" / "test-full.tgz"
