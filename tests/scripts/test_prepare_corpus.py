"""WMT14 and Multi30k from published files to data-bins, in both modes; stopped, changed and refused runs."""

import gzip
import hashlib
from pathlib import Path

import pytest
from sacrebleu import DATASETS

import prepare_corpus
from corpora.tokens import tokenise
from corpus_files import pairs, serving, sgml, tar, text
from fairseq_luna.commands.preparing import pipeline
from reader_data import read_texts, read_words

pytestmark = pytest.mark.usefixtures("fairseq_in_forks")

EUROPARL, CRAWL, NEWS = pairs(200, 1), pairs(60, 2), pairs(50, 3)
# Thirteen words and one word, and more than 250 pieces on each side.
BAD = [("One.", "eins " * 12 + "eins."), ("word " * 260 + ".", "Wort " * 260 + ".")]
CAPTIONS, VALID, TEST = pairs(300, 4), pairs(20, 5), pairs(25, 6)
# An empty side in the third pair and the last one.
TRAIN = [*CAPTIONS[:2], ("Nothing to it.", ""), *CAPTIONS[2:], ("", "Nichts.")]


def side(of: list[tuple[str, str]], language: str) -> list[str]:
    return [pair[language == "de"] for pair in of]


def archive(of: list[tuple[str, str]], stem: str) -> bytes:
    members = {f"{stem}.{language}": text(side(of, language)) for language in ("en", "de")}
    return tar({"../outside.en": b"not read\n", **members})


PUBLISHED = {
    "de-en.tgz": archive(EUROPARL, "europarl-v7.de-en"),
    "training-parallel-commoncrawl.tgz": archive(CRAWL + BAD, "commoncrawl.de-en"),
    "training-parallel-nc-v9.tgz": archive(NEWS, "training/news-commentary-v9.de-en"),
    **{
        f"{stem}.{language}.gz": gzip.compress(text(side(of, language)))
        for stem, of in (("train", TRAIN), ("val", VALID))
        for language in ("en", "de")
    },
}
# By sacreBLEU's names.
SETS = {
    "wmt13": (VALID, "test/newstest2013-src.en.sgm", "test/newstest2013-src.de.sgm"),
    "wmt14/full": (TEST, "test-full/newstest2014-deen-src.en.sgm", "test-full/newstest2014-deen-ref.de.sgm"),
    "multi30k/2016": (TEST, "test_2016_flickr.en", "test_2016_flickr.de"),
}


@pytest.fixture
def server(tmp_path, monkeypatch):
    """A server in place of the published ones, with files and checksums of its own, for us and for sacreBLEU."""
    with serving() as server:
        server.files = {f"/{name}": content for name, content in PUBLISHED.items()}
        for corpus in prepare_corpus.CORPORA.values():
            for entry in (entry for found in corpus["splits"].values() for entry in found if "url" in entry):
                name = entry["url"].rsplit("/", 1)[1]
                for key in ("checksum",) if "checksum" in entry else ("en", "de"):
                    checksum = "sha256:" + hashlib.sha256(PUBLISHED[name.replace("LANG", key)]).hexdigest()
                    monkeypatch.setitem(entry, key, checksum)
                monkeypatch.setitem(entry, "url", f"{server.address}/{name}")
        for number, (name, (of, *members)) in enumerate(SETS.items()):
            made = sgml if name.startswith("wmt") else text
            sides = zip(members, ("en", "de"), strict=True)
            content = tar({member: made(side(of, language)) for member, language in sides})
            server.files[f"/{number}.tar.gz"] = content
            published = {"data": [f"{server.address}/{number}.tar.gz"], "md5": [hashlib.md5(content).hexdigest()]}
            folders = {"_outdir": str(tmp_path / name), "_rawdir": str(tmp_path / name / "raw")}
            for attribute, value in (published | folders).items():
                monkeypatch.setattr(DATASETS[name], attribute, value)
        yield server


def prepare(corpus: str, out: Path, *flags: object) -> int:
    return prepare_corpus.main([corpus, "--workers", "1", "--out", str(out), *map(str, flags)])


def test_wmt14_with_merges(server, tmp_path, capsys):
    out = tmp_path / "out"
    flags = ("--bpe", "subword-nmt", "--size", 2000)
    server.files["/de-en.tgz"], kept = b"another file", server.files["/de-en.tgz"]
    assert prepare("wmt14", out, *flags) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "de-en.tgz: its sha256 is not the published one of " in line
    server.files["/de-en.tgz"] = kept

    assert prepare("wmt14", out, *flags) == 0
    shown = capsys.readouterr().out
    assert "training pairs: 310 kept, 2 dropped" in shown
    assert "longer than 250 pieces: 1" in shown
    assert "one side longer than 1.5 times the other: 1" in shown
    raw = (out / "work" / "raw" / "train.de").read_text(encoding="utf-8").splitlines()
    assert raw == side(EUROPARL + CRAWL + BAD + NEWS, "de")
    for split, of in (("valid", VALID), ("test", TEST)):
        for language in ("en", "de"):
            text_of = (out / "reference" / f"{split}.{language}").read_text(encoding="utf-8")
            assert text_of.splitlines() == side(of, language)
    assert not list(tmp_path.rglob("outside*"))
    assert not (out / "work" / "extracted").exists()

    asked = len(server.asked)
    assert prepare("wmt14", out, *flags) == 0
    assert len(server.asked) == asked
    assert prepare("multi30k", out, *flags) == 2
    assert "was made with corpus wmt14, not multi30k" in capsys.readouterr().err


def test_captions_stopped_resumed_and_changed(server, tmp_path, monkeypatch, capsys):
    out = tmp_path / "Läufe und mehr"
    flags = ("--size", 90)

    def stop(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(pipeline, "run_fairseq", stop)
        assert prepare("multi30k", out, *flags) == 130
    assert not (out / "bin").exists()
    capsys.readouterr()

    assert prepare("multi30k", out, *flags) == 0
    shown = capsys.readouterr().out
    assert shown.count(": reusing ") == 7
    assert "training pairs: 300 kept, 2 dropped; one side empty: 2" in shown
    assert "--config-name multi30k " in shown.splitlines()[-1]
    for split, of in (("train", CAPTIONS), ("valid", VALID), ("test", TEST)):
        for language in ("en", "de"):
            lines = read_texts(out / "bin" / f"{split}.en-de.{language}", out / "bin" / f"dict.{language}.txt")
            assert lines == side(of, language)

    assert prepare("multi30k", out, "--size", 91) == 2
    assert capsys.readouterr().err.endswith("was made with size 90, not 91: use another --out\n")


def test_captions_as_lower_cased_tokens(server, tmp_path):
    out = tmp_path / "out"
    assert prepare("multi30k", out, "--bpe", "subword-nmt", "--size", 60, "--downloads", tmp_path / "downloads") == 0
    tokens = [line.lower().removesuffix(".") + " ." for line in side(TEST, "de")]
    assert (out / "reference" / "test.tok.de").read_text(encoding="utf-8").splitlines() == tokens
    assert (out / "reference" / "test.de").read_text(encoding="utf-8").splitlines() == side(TEST, "de")
    merged = read_words(out / "bin" / "test.en-de.de", out / "bin" / "dict.de.txt")
    assert [line.replace("@@ ", "") for line in merged] == tokens
    assert (out / "bin" / "dict.en.txt").read_bytes() == (out / "bin" / "dict.de.txt").read_bytes()
    assert len((out / "codes").read_text(encoding="utf-8").splitlines()) == 61  # the first line is the version


def test_moses_tokens():
    made = tokenise("en", {"lower": False, "split_hyphens": True}, ["It's a well-known\u200b “R&D” ."])
    assert made == ["It &apos;s a well @-@ known &quot; R &amp; D &quot; ."]
    assert tokenise("de", {"lower": True, "split_hyphens": False}, ["Die U-Bahn, bitte."]) == ["die u-bahn , bitte ."]


def test_a_test_set_that_sacrebleu_cannot_get_is_named(server, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(DATASETS["multi30k/2016"], "md5", ["0" * 32])
    assert prepare("multi30k", tmp_path / "out") == 1
    said = capsys.readouterr().err.splitlines()[-1]
    assert said.startswith("prepare_corpus.py: sacreBLEU cannot get its test set multi30k/2016")
    assert not (tmp_path / "out" / "work" / "raw").exists()
