"""``fairseq-luna score --documents``: documents and aligned segments are scored as sacreBLEU does, by source."""

import json

import pytest
from sacrebleu.metrics import BLEU

from corpus_files import pairs
from fairseq_luna.__main__ import main
from fairseq_luna.commands.scoring.documents import join_documents, read_labels
from own_command import refused, shown

# Two documents of one source, the first on two lines, and one of another.
LABELS = ["talks\t1", "talks\t1", "talks\t2", "news\t1"]
SEGMENTS = [german for _, german in pairs(9)]
REFERENCE = [SEGMENTS[0:3], SEGMENTS[3:5], SEGMENTS[5:8], SEGMENTS[8:9]]


def worse(segment):
    return " ".join(segment.split()[1:])


# In the third line a separator is missing; in the first, one segment is empty.
TRANSLATION = [
    [SEGMENTS[0], "", worse(SEGMENTS[2])],
    [worse(segment) for segment in SEGMENTS[3:5]],
    [f"{SEGMENTS[5]} {SEGMENTS[6]}", worse(SEGMENTS[7])],
    [worse(SEGMENTS[8])],
]


@pytest.fixture
def files(tmp_path):
    """The reference, its documents, and fairseq-generate's output in SentencePiece's pieces."""
    content = {"test.de": [" <sep> ".join(line) for line in REFERENCE], "test.documents": LABELS}
    cut = [" <sep> ".join(" ".join(f"▁{word}" for word in part.split()) for part in line) for line in TRANSLATION]
    content["generated"] = [f"H-{number}\t-0.1\t{line}" for number, line in enumerate(cut)]
    content["perfect"] = [f"H-{number}\t-0.1\t{line}" for number, line in enumerate(content["test.de"])]
    for name, lines in content.items():
        (tmp_path / name).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return {name: tmp_path / name for name in content}


def given(files, *flags):
    fixed = ("--reference", files["test.de"], "--documents", files["test.documents"])
    return ("score", files["generated"], *fixed, *flags)


def bleu(hypotheses, references):
    return BLEU(force=True).corpus_score(hypotheses, [references]).score


def text(lines):
    return " ".join(" ".join(segment for line in lines for segment in line).split())


def test_documents_and_aligned_segments_by_source(files, tmp_path, capsys):
    printed = shown(capsys, *given(files, "--json", tmp_path / "scores.json"))
    kept = json.loads((tmp_path / "scores.json").read_text())
    rows = {row["source"]: row for row in kept["documents"][str(files["generated"])]}
    assert list(rows) == ["talks", "news", None]
    ours, theirs = ([text(side[0:2]), text(side[2:3]), text(side[3:4])] for side in (TRANSLATION, REFERENCE))
    assert [rows[source]["document_bleu"] for source in rows] == [
        bleu(ours[part], theirs[part]) for part in (slice(0, 2), slice(2, 3), slice(0, 3))
    ]
    assert kept["systems"][str(files["generated"])]["scores"]["sacreBLEU"]["score"] == rows[None]["document_bleu"]
    counts = [(row["documents"], row["aligned"], row["segments"]) for row in rows.values()]
    assert counts == [(2, 5, 8), (1, 1, 1), (3, 6, 9)]
    aligned = [segment for line in (*TRANSLATION[:2], TRANSLATION[3]) for segment in line]
    assert rows[None]["segment_bleu"] == bleu(aligned, [*SEGMENTS[:5], SEGMENTS[8]])
    assert ": 3 documents\n" in printed
    row = f"{rows['talks']['document_bleu']:6.2f}          2 {rows['talks']['segment_bleu']:13.2f}  5 of 8 "
    assert row in printed and "  all\n" in printed


def test_chosen_sources_are_compared_by_document(files, tmp_path, capsys):
    compare = ["--paired", files["perfect"], "--samples", 20]
    printed = shown(capsys, *given(files, *compare, "--sources", "talks", "--json", tmp_path / "scores.json"))
    assert printed.count("100.00  sacreBLEU") == 1
    assert ": 2 documents of talks\n" in printed and "paired bootstrap against " in printed
    kept = json.loads((tmp_path / "scores.json").read_text())
    ours, theirs = ([text(side[0:2]), text(side[2:3])] for side in (TRANSLATION, REFERENCE))
    assert kept["systems"][str(files["generated"])]["scores"]["sacreBLEU"]["score"] == bleu(ours, theirs)
    assert ": 3 documents of news, talks\n" in shown(capsys, *given(files, "--sources", "news", "talks"))
    said = refused(capsys, *given(files, *compare, "--sources", "news"))
    assert "the bootstrap draws from at least 2 documents of news, but there is 1" in said


def test_documents_have_several_references(files, tmp_path, capsys):
    """A line is aligned if it has as many separators as every reference."""
    other = [[worse(segment) for segment in line] for line in REFERENCE]
    other[0] = [" ".join(other[0][:2]), other[0][2]]
    (tmp_path / "other.de").write_text("".join(" <sep> ".join(line) + "\n" for line in other))
    shown(capsys, *given(files, "--reference", tmp_path / "other.de", "--json", tmp_path / "scores.json"))
    kept = json.loads((tmp_path / "scores.json").read_text())
    row = kept["documents"][str(files["generated"])][-1]
    ours, *theirs = ([text(side[0:2]), text(side[2:3]), text(side[3:4])] for side in (TRANSLATION, REFERENCE, other))
    assert row["document_bleu"] == BLEU(force=True).corpus_score(ours, theirs).score
    aligned = [[segment for line in (side[1], side[3]) for segment in line] for side in (TRANSLATION, REFERENCE, other)]
    assert (row["aligned"], row["segments"]) == (3, 9)
    assert row["segment_bleu"] == BLEU(force=True).corpus_score(aligned[0], aligned[1:]).score


def test_each_line_of_a_single_document_is_one(tmp_path):
    """Else d-BLEU would not see which line was translated."""
    file = tmp_path / "test.documents"
    file.write_text("captions\t1\ncaptions\t1\ntalks\t1\ntalks\t1\ntalks\t2\n")
    assert join_documents(list("abcde"), read_labels(file, 5)) == ["a", "b", "c d", "e"]


def test_no_line_has_as_many_separators(files, capsys):
    files["generated"].write_text("".join(f"H-{number}\t-0.1\ta" + " <sep>" * 9 + "\n" for number in range(4)))
    assert main([*map(str, given(files))]) == 0  # with a warning that few words match
    assert "-  0 of 9 " in capsys.readouterr().out


@pytest.mark.parametrize(
    ("labels", "flags", "said"),
    [
        (LABELS[1:], (), "3 lines, but the reference has 4"),
        (["talks 1", *LABELS[1:]], (), "line 1: must be a source, a tab and a document's number"),
        (["talks\t", *LABELS[1:]], (), "line 1: must be a source, a tab and a document's number"),
        (
            ["talks\t1", "talks\t2", "news\t1", "talks\t1 "],
            (),
            "lines 1 and 4: both are of document 1 of talks, but others are between them; give each document a number",
        ),
        (LABELS, ("--sources", "talks", "ted"), "--sources ted: the sources are talks, news"),
    ],
)
def test_wrong_documents_are_refused_in_one_line(files, capsys, labels, flags, said):
    files["test.documents"].write_text("\n".join(labels) + "\n")
    assert said in refused(capsys, *given(files, *flags))
