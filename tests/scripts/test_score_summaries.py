"""ROUGE of summaries, by hand and by command; without the library one line says what to install."""

import sys

import pytest

import score_summaries
from score_summaries import rouge

REFERENCES = ["The cats sat here. A dog barked.", "One two three."]


def generated(path, summaries):
    path.write_text("".join(f"H-{number}\t-0.5\t{text}\n" for number, text in enumerate(summaries)))
    return str(path)


def test_scores_by_hand():
    pytest.importorskip("rouge_score")
    # Stems are equal: cat, sat, dog, bark. Words, pairs, the longest common subsequence of all, and of each sentence.
    found = rouge(["Dogs barking. The cat sat.", "One two three."], REFERENCES)
    assert found.sentences == 2
    halves = [2 * 5 / (5 + 7), 2 * 3 / (4 + 6), 2 * 3 / (5 + 7), 2 * 5 / (5 + 7)]
    assert [measure.score for measure in found.measures] == pytest.approx([50 * (half + 1) for half in halves])


def test_by_command(tmp_path, capsys):
    pytest.importorskip("rouge_score")
    (tmp_path / "test.target").write_text("".join(f"{line}\n" for line in REFERENCES))
    flags = ("--reference", str(tmp_path / "test.target"))
    assert score_summaries.main([generated(tmp_path / "out", REFERENCES), *flags]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].endswith("out: 2 summaries")
    assert [line.split()[:2] for line in lines[1:]] == [["100.00", f"ROUGE-{name}"] for name in ("1", "2", "L", "L")]


def test_without_the_library_one_line_says_what_to_install(tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "rouge_score.rouge_scorer", None)
    (tmp_path / "test.target").write_text("".join(f"{line}\n" for line in REFERENCES))
    arguments = (generated(tmp_path / "out", REFERENCES), "--reference", str(tmp_path / "test.target"))
    assert score_summaries.main(arguments) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line == "score_summaries.py: rouge-score is not installed: pip install rouge-score"
