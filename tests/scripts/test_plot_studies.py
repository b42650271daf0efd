"""The pictures of the studies have the numbers of the studies' tables."""

import pytest

import plot_studies as script
from shared import picture


def drawn(monkeypatch, name, output):
    figures = []
    monkeypatch.setattr(picture, "save", lambda figure, output: figures.append(figure))
    assert script.main([name, f"--output={output}"]) == 0
    return figures[0].axes


def test_the_bars_are_the_scores_of_the_conversions(tmp_path, monkeypatch):
    after_100, _, after_600 = drawn(monkeypatch, "conversion", tmp_path / "picture.png")
    assert after_100.get_title() == "after 100 updates"
    assert [bar.get_width() for bar in after_100.patches] == [37.9, 38.3, 37.9, 37.8, 36.5, 36.0, 12.7, 0.8]
    assert [text.get_text() for text in after_600.texts][-2:] == ["35.7", "24.0"]


def test_the_dots_are_milliseconds_and_memory(tmp_path, monkeypatch):
    axes = drawn(monkeypatch, "attention", tmp_path / "picture.png")
    shortest, longest, memory = ([line.get_xdata()[0] for line in axis.lines] for axis in axes)
    assert shortest == pytest.approx([0.40 * 7.1, 0.71 * 7.1, 0.97 * 7.1, 7.1, 9.6 * 7.1, 16.1 * 7.1])
    assert longest[0] == pytest.approx(3.61 * 91.8) and longest[3] == 91.8
    assert memory == [41, 80, 124, 89, 858, 1312]


def test_a_row_that_is_missing_is_named():
    with pytest.raises(script.CommandError, match="has no row '`local`'"):
        script.row_of({"`linear`": ["1"]}, "`local`")
    with pytest.raises(script.CommandError, match="no table begins with 'nothing'"):
        script.table("2026-11-23-costs.md", "nothing")
