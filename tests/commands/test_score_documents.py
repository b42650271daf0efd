"""``fairseq-luna score --documents``: documents and aligned segments are scored as sacreBLEU does, by source."""

import json
from pathlib import Path

import pytest
from sacrebleu.metrics import BLEU

from corpus_files import pairs
from fairseq_luna.__main__ import main
from fairseq_luna.commands.scoring.documents import read_labels, whole

# Two documents of one source, the first on two lines, and one of another.
LABELS = ["talks\t1", "talks\t1", "talks\t2", "news\t1"]
SEGMENTS = [german for _, german in pairs(9)]
REFERENCE = [SEGMENTS[0:3], SEGMENTS[3:5], SEGMENTS[5:8], SEGMENTS[8:9]]


def worse(segment: str) -> str:
    return " ".join(segment.split()[1:])


# In the third line a separator is missing; in the first, one segment is empty.
TRANSLATION = [
    [SEGMENTS[0], "", worse(SEGMENTS[2])],
    [worse(segment) for segment in SEGMENTS[3:5]],
    [f"{SEGMENTS[5]} {SEGMENTS[6]}", worse(SEGMENTS[7])],
    [worse(SEGMENTS[8])],
]


@pytest.fixture
def files(tmp_path: Path) -> dict[str, Path]:
    """The reference, its documents, and fairseq-generate's output in SentencePiece's pieces."""
    content = {"test.de": [" <sep> ".join(line) for line in REFERENCE], "test.documents": LABELS}
    cut = [" <sep> ".join(" ".join(f"▁{word}" for word in part.split()) for part in line) for line in TRANSLATION]
    content["generated"] = [f"H-{number}\t-0.1\t{line}" for number, line in enumerate(cut)]
    content["perfect"] = [f"H-{number}\t-0.1\t{line}" for number, line in enumerate(content["test.de"])]
    for name, lines in content.items():
        (tmp_path / name).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return {name: tmp_path / name for name in content}


def run(files: dict[str, Path], *flags: object) -> int:
    common = ["--reference", files["test.de"], "--documents", files["test.documents"]]
    return main(["score", *map(str, (files["generated"], *common, *flags))])


def bleu(hypotheses: list[str], references: list[str]) -> float:
    return BLEU(force=True).corpus_score(hypotheses, [references]).score


def text(lines: list[list[str]]) -> str:
    return " ".join(" ".join(segment for line in lines for segment in line).split())


def test_documents_and_aligned_segments_by_source(
    files: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(files, "--json", tmp_path / "scores.json") == 0
    shown = capsys.readouterr().out
    kept = json.loads((tmp_path / "scores.json").read_text())
    rows = {row["source"]: row for row in kept["documents"][str(files["generated"])]}
    assert list(rows) == ["talks", "news", None]
    ours, theirs = ([text(side[0:2]), text(side[2:3]), text(side[3:4])] for side in (TRANSLATION, REFERENCE))
    assert [rows[source]["document_bleu"] for source in rows] == [
        bleu(ours[part], theirs[part]) for part in (slice(0, 2), slice(2, 3), slice(0, 3))
    ]
    assert kept["systems"][str(files["generated"])]["scores"]["sacreBLEU"]["score"] == rows[None]["document_bleu"]
    assert [(row["documents"], row["aligned"], row["segments"]) for row in rows.values()] == [
        (2, 5, 8),
        (1, 1, 1),
        (3, 6, 9),
    ]
    aligned = [segment for line in (*TRANSLATION[:2], TRANSLATION[3]) for segment in line]
    assert rows[None]["segment_bleu"] == bleu(aligned, [*SEGMENTS[:5], SEGMENTS[8]])
    assert ": 3 documents\n" in shown
    row = f"{rows['talks']['document_bleu']:6.2f}          2 {rows['talks']['segment_bleu']:13.2f}  5 of 8 "
    assert row in shown and "  all\n" in shown


def test_chosen_sources_are_compared_by_document(
    files: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    compare = ["--paired", files["perfect"], "--samples", 20]
    assert run(files, *compare, "--sources", "talks", "--json", tmp_path / "scores.json") == 0
    shown = capsys.readouterr().out
    assert shown.count("100.00  sacreBLEU") == 1
    assert ": 2 documents of talks\n" in shown and "paired bootstrap against " in shown
    kept = json.loads((tmp_path / "scores.json").read_text())
    ours, theirs = ([text(side[0:2]), text(side[2:3])] for side in (TRANSLATION, REFERENCE))
    assert kept["systems"][str(files["generated"])]["scores"]["sacreBLEU"]["score"] == bleu(ours, theirs)
    assert run(files, "--sources", "news", "talks") == 0
    assert ": 3 documents of news, talks\n" in capsys.readouterr().out
    assert run(files, *compare, "--sources", "news") == 2
    assert "the bootstrap draws from at least 2 documents of news, but there is 1" in capsys.readouterr().err


def test_each_line_of_a_single_document_is_one(tmp_path: Path) -> None:
    """Else d-BLEU would not see which line was translated."""
    file = tmp_path / "test.documents"
    file.write_text("captions\t1\ncaptions\t1\ntalks\t1\ntalks\t1\ntalks\t2\n")
    assert whole(list("abcde"), read_labels(file, 5)) == ["a", "b", "c d", "e"]


def test_a_document_has_no_separators_and_no_empty_segments() -> None:
    assert whole(["a <sep>  <sep> b", "c<sep> d", "<sep>"], ["x\t1", "x\t1", "x\t2"]) == ["a b c d", ""]


def test_no_line_has_as_many_separators(files: dict[str, Path], capsys: pytest.CaptureFixture[str]) -> None:
    files["generated"].write_text("".join(f"H-{number}\t-0.1\ta" + " <sep>" * 9 + "\n" for number in range(4)))
    assert run(files) == 0
    assert "-  0 of 9 " in capsys.readouterr().out


def test_wrong_documents_are_refused_in_one_line(files: dict[str, Path], capsys: pytest.CaptureFixture[str]) -> None:
    for content, said in (
        (LABELS[1:], "3 lines, but the reference has 4"),
        (["talks 1", *LABELS[1:]], "line 1: must be a source, a tab and a document's number"),
    ):
        files["test.documents"].write_text("\n".join(content) + "\n")
        assert run(files) == 2
        shown = capsys.readouterr()
        assert (shown.out, shown.err.count("\n")) == ("", 1)
        assert said in shown.err
    files["test.documents"].write_text("\n".join(LABELS) + "\n")
    assert run(files, "--sources", "talks", "ted") == 2
    assert capsys.readouterr().err.endswith("--sources ted: the sources are talks, news\n")
