"""README's picture has the times of README's table of speed and the scores of its table of quality."""

from pathlib import Path

import pytest

import plot_quality_and_speed as script
from shared import picture

ROOT = Path(__file__).parents[2]
NAMES = [name for name, _, _ in script.SYSTEMS.values()]


def drawn(monkeypatch, output):
    figures = []
    monkeypatch.setattr(picture, "save", lambda figure, output: figures.append(figure))
    assert script.main([f"--output={output}"]) == 0
    *times, quality = figures[0].axes
    return times, quality


def test_the_bars_are_the_times_of_readmes_table(tmp_path, monkeypatch):
    times, _ = drawn(monkeypatch, tmp_path / "picture.png")
    table = (ROOT / "README.md").read_text(encoding="utf-8").partition("\n## Speed\n")[2].split("\n\n| ")[1]
    rows = [[cell.strip() for cell in line.split("|")] for line in table.partition("\n\n")[0].splitlines()]
    rows = {row[1]: row[2:-1] for row in rows[2:]}
    assert len(times) == 5
    for column, axis in enumerate(times):
        measured = [rows[name][column].split(" ")[0] for name in NAMES if rows[name][column][0].isdigit()]
        assert [bar.get_width() for bar in axis.patches] == list(map(float, measured))
        shown = [text.get_text() for text in axis.texts]
        assert len(shown) == len(NAMES) and shown.count("not measured") == len(NAMES) - len(measured)


def test_each_model_has_its_colour_and_its_quality(tmp_path, monkeypatch):
    _, quality = drawn(monkeypatch, tmp_path / "picture.png")
    colours = [picture.COLOURS[name] for name in script.SYSTEMS]
    assert len(set(colours)) == len(colours)
    scores = [container.lines[0] for container in quality.containers]
    assert [line.get_color() for line in scores] == colours
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    table = readme.partition("| model | test_2016_flickr, BLEU |")[2].partition("\n\n")[0]
    rows = [[cell.strip() for cell in line.split("|")] for line in table.splitlines()[2:]]
    assert [float(line.get_xdata()[0]) for line in scores] == pytest.approx(
        [float(row[2].split()[0]) for row in rows], abs=0.051
    )


def test_a_row_that_is_missing_is_named():
    with pytest.raises(script.CommandError, match="has no row 'block attention'"):
        script.relative_times("\n".join(f"| {name} | 1 | 1 | 1 | 1 | 1 |" for name in NAMES[:-1]))
