"""WMT14 from downloaded or given archives to a data-bin; bad input is refused in one line."""

import hashlib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

import prepare_wmt14_ende
from corpora import command_line, wmt14
from corpora.catalogue import Place, Remote, Source
from corpus_files import Server, pairs, serving, sgml, tar, text, write_pairs

EUROPARL, CRAWL, NEWS = pairs(200, 1), pairs(60, 2), pairs(50, 3)
# Thirteen words and one word, and more than 250 pieces on each side.
BAD = [("One.", "eins " * 12 + "eins."), ("word " * 260 + ".", "Wort " * 260 + ".")]
VALID, TEST = pairs(3000, 4), pairs(3003, 5)


def english(of: list[tuple[str, str]]) -> list[str]:
    return [pair[0] for pair in of]


def german(of: list[tuple[str, str]]) -> list[str]:
    return [pair[1] for pair in of]


def archive(of: list[tuple[str, str]], stem: str) -> bytes:
    members = {f"{stem}.en": text(english(of)), f"{stem}.de": text(german(of)), f"{stem}.fr": b"autre\n"}
    return tar(members)


@pytest.fixture(scope="module")
def archives() -> dict[str, bytes]:
    """Small archives by their published names."""
    test = "test-full/newstest2014-deen"
    return {
        "de-en.tgz": archive(EUROPARL, "europarl-v7.de-en"),
        "training-parallel-commoncrawl.tgz": archive(CRAWL + BAD, "commoncrawl.de-en"),
        "training-parallel-nc-v9.tgz": archive(NEWS, "training/news-commentary-v9.de-en"),
        "dev.tgz": archive(VALID, "dev/newstest2013"),
        "test-full.tgz": tar(
            {f"{test}-src.en.sgm": sgml(english(TEST)), f"{test}-ref.de.sgm": sgml(german(TEST), "refset")}
        ),
    }


@pytest.fixture
def folder(archives: dict[str, bytes], tmp_path: Path) -> Path:
    """A folder with the archives."""
    folder = tmp_path / "given"
    folder.mkdir()
    for name, content in archives.items():
        (folder / name).write_bytes(content)
    return folder


@pytest.fixture
def published(archives: dict[str, bytes], monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    """A server in place of statmt.org, and the catalogue with its addresses and checksums."""

    def here(place: Place) -> Place:
        content = archives.get(place.remote.name, b"")
        checksum = "sha256:" + hashlib.sha256(content).hexdigest()
        urls = tuple(f"{server.address}/{mirror}/{place.remote.name}" for mirror in ("first", "second"))
        return Place(Remote(urls, checksum), place.member)

    with serving() as server:
        server.files = {f"/second/{name}": content for name, content in archives.items()}
        splits = [
            replace(
                split,
                parts=tuple(
                    replace(part, sources=tuple(Source(*map(here, source)) for source in part.sources))
                    for part in split.parts
                ),
            )
            for split in wmt14.SPLITS
        ]
        monkeypatch.setattr(wmt14, "SPLITS", splits)
        yield server


def prepare(*flags: object) -> int:
    return prepare_wmt14_ende.main(["--workers", "1", *map(str, flags)])


def refusal(capsys: pytest.CaptureFixture[str], folder: Path, *flags: object) -> str:
    """The one line with which a run on ``folder`` is refused."""
    out = folder.parent / "out"
    assert prepare("--from-dir", folder, "--out", out, *flags) == 2
    shown = capsys.readouterr().err
    assert shown.count("\n") == 1
    assert not (out / "bin").exists()
    return shown.removeprefix("prepare_wmt14_ende.py: ").strip()


def test_merges_from_a_server(
    published: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    flags = ["--out", out, "--bpe", "subword-nmt", "--merges", "2000"]
    published.files["/second/de-en.tgz"], kept = b"another file", published.files["/second/de-en.tgz"]
    assert prepare(*flags) == 2
    assert "Europarl v7: cannot download" in capsys.readouterr().err
    published.files["/second/de-en.tgz"] = kept

    assert prepare(*flags) == 0
    shown = capsys.readouterr().out
    assert "training pairs: 310 kept, 2 dropped" in shown
    assert "longer than 250 pieces: 1" in shown
    assert "one side longer than 1.5 times the other: 1" in shown
    raw = (out / "work" / "raw" / "train.de").read_text(encoding="utf-8").splitlines()
    assert raw == german(EUROPARL + CRAWL + BAD + NEWS)
    for split, of in (("valid", VALID), ("test", TEST)):
        assert (out / "reference" / f"{split}.en").read_text(encoding="utf-8").splitlines() == english(of)
        assert (out / "reference" / f"{split}.de").read_text(encoding="utf-8").splitlines() == german(of)
    assert "test.en-de.de.bin" in {path.name for path in (out / "bin").iterdir()}

    asked = len(published.asked)
    assert prepare(*flags) == 0
    assert len(published.asked) == asked


def test_sentencepiece_with_held_out_pairs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    write_pairs(tmp_path / "given", "train", EUROPARL, gzipped=True)
    out = tmp_path / "out"
    flags = ["--from-dir", tmp_path / "given", "--hold-out", "20", "--out", out, "--vocabulary-size", "90"]
    assert prepare(*flags) == 0
    assert (out / "reference" / "valid.de").read_text(encoding="utf-8").splitlines() == german(EUROPARL[-40:-20])
    assert (out / "reference" / "test.de").read_text(encoding="utf-8").splitlines() == german(EUROPARL[-20:])
    assert (out / "joint.model").exists()
    shown = capsys.readouterr().out
    assert f"fairseq-train {out / 'bin'} --user-dir " in shown.splitlines()[-1]


def test_a_dry_run_prints_all_files_and_writes_none(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert prepare("--dry-run", "--out", tmp_path / "out") == 0
    shown = capsys.readouterr().out
    assert shown.count("would download https://www.statmt.org/") == 5
    assert "training-parallel-commoncrawl.tgz (918,311,367 bytes, sha256:c7a74e2e" in shown
    (folder / "test-full.tgz").unlink()
    assert prepare("--dry-run", "--out", tmp_path / "out", "--from-dir", folder) == 0
    shown = capsys.readouterr().out
    assert f"valid: would read {folder / 'dev.tgz'}" in shown
    assert "test: lacks newstest2014 (test-full.tgz" in shown
    assert not (tmp_path / "out").exists()


def test_the_filtered_test_set_is_refused(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    write_pairs(folder, "test", pairs(2737))
    message = refusal(capsys, folder)
    assert message.startswith("test: 2,737 sentences where 3,003 are expected; this is the filtered newstest2014")


def test_a_tar_that_leads_out_is_refused(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "dev.tgz").write_bytes(tar({"../../escaped": b"x"}))
    message = refusal(capsys, folder)
    assert message == f"{folder / 'dev.tgz'}: refused, its member ../../escaped leads out of the folder"
    assert not list(folder.parent.rglob("escaped"))


def test_half_an_archive_is_refused(
    folder: Path, archives: dict[str, bytes], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    whole = archives["test-full.tgz"]
    (folder / "test-full.tgz").write_bytes(whole[: len(whole) // 2])
    assert "test-full.tgz: corrupt or incomplete" in refusal(capsys, folder)


def test_a_bad_archive_can_be_replaced(
    folder: Path, archives: dict[str, bytes], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The bad archive and its extracted files are replaced."""
    stem = "test-full/newstest2014-deen"
    shorter = {f"{stem}-src.en.sgm": sgml(english(TEST[1:])), f"{stem}-ref.de.sgm": sgml(german(TEST[1:]))}
    (folder / "test-full.tgz").write_bytes(tar(shorter))
    assert "test: 3,002 sentences where 3,003 are expected" in refusal(capsys, folder)
    (folder / "test-full.tgz").write_bytes(archives["test-full.tgz"])
    out = folder.parent / "out"
    monkeypatch.setattr(command_line, "prepare", lambda out, gather, *_: gather(out / "work" / "raw"))
    assert prepare("--from-dir", folder, "--out", out) == 0
    assert (out / "work" / "raw" / "test.en").read_text(encoding="utf-8").splitlines() == english(TEST)
    assert not (out / "work" / "extracted").exists()


@pytest.mark.parametrize(
    ("german_side", "expected"),
    [
        (b"eins\nzwei\n", r"train.en has 3 lines but {folder}/train.de has 2: they are not a parallel text"),
        (b"eins\nzw\xff\ndrei\n", "{folder}/train.de, line 2: not UTF-8 (invalid start byte at byte 3)"),
    ],
    ids=["one-line-short", "latin-1"],
)
def test_a_bad_training_text_is_refused(
    folder: Path,
    german_side: bytes,
    expected: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (folder / "train.en").write_bytes(b"one\ntwo\nthree\n")
    (folder / "train.de").write_bytes(german_side)
    assert refusal(capsys, folder).endswith(expected.format(folder=folder))


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        (["--from-dir", "nowhere"], "--from-dir nowhere: no such folder"),
        (["--hold-out", "5"], "--hold-out: only with --from-dir"),
        (["--tokenised", "--bpe", "subword-nmt"], "--tokenised: only with --from-dir and --bpe subword-nmt"),
        (["--tokenised", "--from-dir", "."], "--tokenised: only with --from-dir and --bpe subword-nmt"),
    ],
)
def test_invalid_flags_are_refused(
    flags: list[str],
    expected: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert prepare(*flags) == 2
    assert expected in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_holding_out_an_existing_split_is_refused(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert "has its own valid and test" in refusal(capsys, folder, "--hold-out", "5")
