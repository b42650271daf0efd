"""Only newlines end lines, files are read in pairs, and errors name the line."""

import gzip
import subprocess
from itertools import count, islice
from pathlib import Path

import pytest

from fairseq_luna import text_files
from fairseq_luna.text_files import batched, count_lines, read_lines, read_pairs
from fairseq_luna.usage_error import UsageError


def test_only_a_newline_ends_a_line(tmp_path):
    path = tmp_path / "text"
    path.write_bytes("\ufeffa\u2028b\u0085c\x0bd\r\n\ne\rf".encode())
    assert list(read_lines(path)) == ["a\u2028b\u0085c\x0bd", "", "e\rf"]


def test_a_line_that_is_not_utf8_is_named(tmp_path):
    path = tmp_path / "train.de"
    path.write_bytes("gut\nschön\n".encode() + "böse\n".encode("latin-1"))
    with pytest.raises(UsageError, match=r"train\.de, line 3: not UTF-8 .* at byte 2"):
        list(read_lines(path))


@pytest.mark.parametrize("line_end", ["\n", "\r\n"], ids=["unix", "windows"])
@pytest.mark.parametrize(
    ("encoding", "said"),
    [
        ("utf-16", "UTF-16"),
        ("utf-16-le", "UTF-16LE"),
        ("utf-16-be", "UTF-16BE"),
        ("utf-32", "UTF-32"),
        ("utf-32-le", "UTF-32LE"),
        ("utf-32-be", "UTF-32BE"),
    ],
)
def test_a_wide_encoding_is_named(tmp_path, encoding, said, line_end):
    path = tmp_path / "train.de"
    path.write_bytes(line_end.join(["Two dogs.", "Übung", ""]).encode(encoding))
    with pytest.raises(UsageError) as refused:
        list(read_lines(path))
    assert str(refused.value) == f"{path}, line 1: is {said}, not UTF-8; convert it: iconv -f {said} -t UTF-8"
    path.write_text(
        subprocess.run(["iconv", "-f", said, "-t", "UTF-8", path], capture_output=True, check=True, text=True).stdout
    )
    assert list(read_lines(path)) == ["Two dogs.", "Übung"]


@pytest.mark.parametrize(
    ("content", "place"),
    [
        (b"a\n\0\n", "line 2: has a NUL byte at byte 1"),
        (b"abc\0", "line 1: has a NUL byte at byte 4"),
        (b"a\0bcdef\n", "line 1: has a NUL byte at byte 2"),
        ("今天\n".encode("utf-16-be"), "line 1: has a NUL byte at byte 5"),
    ],
)
def test_nul_is_no_text(tmp_path, content, place):
    path = tmp_path / "train.de"
    path.write_bytes(content)
    with pytest.raises(UsageError, match=rf"train\.de, {place}; the file is damaged, or is not UTF-8 text"):
        list(read_lines(path))


@pytest.mark.parametrize("damage", ["half", "text"])
def test_a_corrupt_gzip_file_is_named(tmp_path, damage):
    whole = gzip.compress(b"".join(b"%d\n" % (number**3) for number in range(5000)))
    path = tmp_path / "train.de.gz"
    path.write_bytes(whole[: len(whole) // 2] if damage == "half" else b"Not Found\n")
    with pytest.raises(UsageError, match=r"train\.de\.gz: corrupt or incomplete"):
        list(read_lines(path))


@pytest.mark.parametrize(("ours", "theirs"), [(3, 5), (5, 3), (0, 1)])
def test_unequal_files_are_both_named_with_their_lengths(tmp_path, ours, theirs):
    first, second = tmp_path / "train.en", tmp_path / "train.de"
    first.write_text("x\n" * ours)
    second.write_text("y\n" * theirs)
    with pytest.raises(UsageError, match=rf"train\.en has {ours} lines but .*train\.de has {theirs}: "):
        list(read_pairs(first, second))


def test_empty_lines_are_kept(tmp_path):
    (tmp_path / "a").write_text("x\n\n\u2028\n", encoding="utf-8")
    (tmp_path / "b").write_text("\nz\nw\n")
    assert list(read_pairs(tmp_path / "a", tmp_path / "b")) == [("x", ""), ("", "z"), ("\u2028", "w")]
    assert count_lines(tmp_path / "a") == 3


def test_endless_text_is_read_as_it_is_needed(monkeypatch):
    lines = (str(number) for number in count())
    others = (str(-number) for number in count())
    monkeypatch.setattr(text_files, "read_lines", {Path("a"): lines, Path("b"): others}.get)
    paired = read_pairs(Path("a"), Path("b"))
    assert list(islice(paired, 2)) == [("0", "0"), ("1", "-1")]
    assert next(lines) == "2"
    assert next(batched(lines, 3)) == ["3", "4", "5"]
    assert next(lines) == "6"
