"""WMT's SGML: attributes in any form, sentences over several lines, entities or bare ampersands."""

from pathlib import Path

import pytest

from corpora.sgml import read_segments
from corpus_files import sgml
from fairseq_luna.usage_error import UsageError


def segments(tmp_path: Path, content: str) -> list[tuple[str, str]]:
    path = tmp_path / "set.sgm"
    path.write_text(content, encoding="utf-8")
    return [tuple(segment) for segment in read_segments(path)]


def test_written_files_can_be_read(tmp_path: Path) -> None:
    sentences = ["A & B are < C.", "Straße \u2028 und „Häuser“.", 'He said "no".', "one"]
    path = tmp_path / "set.sgm"
    path.write_bytes(sgml(sentences))
    assert [segment.text for segment in read_segments(path)] == [" ".join(each.split()) for each in sentences]


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ('<seg id="7">one</seg>', ("7", "one")),
        ("<seg id='7'> one </seg>", ("7", "one")),
        ("<SEG id=7 >one</SEG>", ("7", "one")),
        ('<seg\n docid="x" id="7">one\n two</seg >', ("7", "one two")),
        ("<seg>one</seg>", ("", "one")),
        ('<seg id="7"></seg>', ("7", "")),
        ('<seg id="7">R&D at AT&amp;T &quot;x&quot; &#8364; &#x20AC; &copy</seg>', ("7", 'R&D at AT&T "x" € € &copy')),
        ('<seg id="7">&amp;lt; once</seg>', ("7", "&lt; once")),
    ],
)
def test_forms_of_a_segment(tmp_path: Path, written: str, expected: tuple[str, str]) -> None:
    assert segments(tmp_path, f"<doc><p>{written}</p></doc>") == [expected]


def test_two_on_one_line(tmp_path: Path) -> None:
    assert segments(tmp_path, '<seg id="1">a</seg><seg id="2">b</seg>') == [("1", "a"), ("2", "b")]


def test_a_segment_that_is_not_closed_is_named_by_its_line(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"set\.sgm, line 2: a <seg> that is not closed"):
        segments(tmp_path, '<doc>\n<seg id="1">a\n<seg id="2">b</seg>\n</doc>')


def test_a_file_without_segments_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"set\.sgm: no <seg> in it"):
        segments(tmp_path, "<html></html>")
