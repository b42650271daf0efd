"""README's picture has every model of its tables, and its quality is that of the page of results."""

import json
from pathlib import Path

import pytest

import plot_quality_and_speed as script
from shared import picture

ROOT = Path(__file__).parents[2]


@pytest.fixture
def times(tmp_path: Path) -> Path:
    """Times as the benchmark writes them, of one more system than is drawn."""
    systems = [*script.SYSTEMS, "luna"]
    rows = [{"system": name, "length": length, "ratio": 1.0} for name in systems for length in (2048, 25)]
    file = tmp_path / "times.json"
    file.write_text(json.dumps({"rows": rows}), encoding="utf-8")
    return file


def test_each_model_has_its_colour_and_its_quality(times: Path, tmp_path: Path, monkeypatch) -> None:
    figures = []
    monkeypatch.setattr(picture, "save", lambda figure, output: figures.append(figure))
    assert script.main([str(times), str(times), "--output", str(tmp_path / "picture.png")]) == 0
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


def test_a_missing_system_is_named(times: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    content = json.loads(times.read_text(encoding="utf-8"))
    content["rows"] = [row for row in content["rows"] if row["system"] != "luna-convolution"]
    times.write_text(json.dumps(content), encoding="utf-8")
    assert script.main([str(times), str(times), "--output", str(tmp_path / "picture.png")]) == 2
    assert "has no times of luna-convolution; give it with --systems" in capsys.readouterr().err
    assert not (tmp_path / "picture.png").exists()
