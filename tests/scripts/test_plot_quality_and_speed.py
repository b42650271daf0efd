"""README's picture has every model of its tables, and its quality is that of the page of results."""

import json
from pathlib import Path

import pytest

import plot_quality_and_speed as script
from shared import picture

ROOT = Path(__file__).parents[2]


def test_each_model_has_its_colour_and_its_quality(tmp_path, monkeypatch, capsys):
    figures, times, output = [], tmp_path / "times.json", tmp_path / "picture.png"
    monkeypatch.setattr(picture, "save", lambda figure, output: figures.append(figure))
    names = [*script.SYSTEMS, "luna"]  # one more than is drawn
    rows = [{"system": name, "length": length, "ratio": 1.0} for name in names for length in (2048, 25)]
    times.write_text(json.dumps({"rows": rows}))
    assert script.main([str(times), str(times), f"--output={output}"]) == 0
    training, generation, quality = figures[0].axes
    colours = [picture.COLOURS[name] for name in script.SYSTEMS]
    assert len(set(colours)) == len(colours) == 5
    for axis in (training, generation):
        assert [line.get_color() for line in axis.lines] == colours
        assert [list(line.get_xdata()) for line in axis.lines] == [[25, 2048]] * 5
    assert [line.get_color() for line in quality.lines] == colours
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    table = readme.partition("| model | test_2016_flickr, BLEU |")[2].partition("\n\n")[0]
    in_table = [float(row.split("|")[2].split()[0]) for row in table.splitlines()[2:]]
    assert [float(line.get_xdata()[0]) for line in quality.lines] == pytest.approx(in_table, abs=0.051)

    times.write_text(json.dumps({"rows": [row for row in rows if row["system"] != "luna-convolution"]}))
    assert script.main([str(times), str(times), f"--output={output}"]) == 2
    assert "has no times of luna-convolution; give it with --systems" in capsys.readouterr().err
