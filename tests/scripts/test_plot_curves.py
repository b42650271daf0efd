"""Logs of fairseq-train, also of killed and resumed runs, and their curves."""

import json
import logging
import math
from pathlib import Path
from typing import Any

import pytest
from numpy.testing import assert_allclose

import plot_curves
from commands import APOLLO, FAMILIES, train
from fairseq_luna.usage_error import UsageError
from plots import curves_picture
from plots.training_log import Series, read, smoothed
from shared.picture import COLOURS

CONFIG = "{'_name': None, 'common': {'log_format': 'json', 'seed': 1}}"

ODD = "$\\a$"  # invalid as mathematics


def step(update: int, loss: float, **values: float) -> str:
    """A line of fairseq's, logged during an epoch."""
    named = {name: str(value) for name, value in {"loss": loss, "num_updates": update, **values}.items()}
    return json.dumps({"epoch": 1, "update": 0.5, "lr": "0.1", **named})


def validation(update: int, *, subset: str = "valid", **values: float) -> str:
    named = {f"{subset}_{name}": str(value) for name, value in values.items()}
    return json.dumps({"epoch": 1, **named, f"{subset}_num_updates": str(update)})


def write(folder: Path, *lines: str, name: str = "log.json") -> Path:
    file = folder / name
    file.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return file


@pytest.fixture(scope="module")
def real_log(tiny_data: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The log of two epochs and of a resumed third one."""
    folder = tmp_path_factory.mktemp("run")
    flags = (*FAMILIES["luna"], *APOLLO, "--log-format=json", "--log-interval=2", f"--log-file={folder / 'log.json'}")
    root = logging.getLogger()
    level, handlers = root.level, list(root.handlers)
    root.setLevel(logging.INFO)  # as in a separate process
    for epochs in (2, 3):
        train(tiny_data, folder, *flags, f"--max-epoch={epochs}")
    root.setLevel(level)
    root.handlers[:] = handlers
    return folder / "log.json"


def test_a_real_resumed_log_is_one_training(real_log: Path) -> None:
    found = read(real_log)
    assert found["loss"].updates == list(range(2, 25, 2))  # 61 sentences, 8 in a batch: 8 updates an epoch
    assert found["valid_loss"].updates == found["train_loss"].updates == [8, 16, 24]
    assert found["valid_ppl"].updates == [8, 16, 24]
    assert all(math.isfinite(value) for series in found.values() for value in series.values)
    for loss, ppl in zip(found["valid_nll_loss"].values, found["valid_ppl"].values, strict=True):
        assert_allclose(ppl, 2**loss, rtol=1e-2)


def test_captured_output_is_read_like_the_log_file(real_log: Path, tmp_path: Path) -> None:
    lines = real_log.read_text().splitlines()
    captured = write(tmp_path, *(f"2026-11-21 07:09:31 | INFO | train_inner | {line}" for line in lines))
    assert read(captured) == read(real_log)


def test_a_resumed_run_replaces_the_later_updates_of_the_killed_one(tmp_path: Path) -> None:
    killed = [
        CONFIG,
        step(10, 9),
        step(20, 8),
        validation(25, bleu=1),
        step(30, 7),
        validation(35, bleu=9),
        step(40, 6),
    ]
    resumed = [CONFIG, step(30, 5), validation(32, bleu=2), step(40, 4)]
    found = read(write(tmp_path, *killed, *resumed))
    assert found["loss"] == Series([10, 20, 30, 40], [9, 8, 5, 4])
    assert found["valid_bleu"] == Series([25, 32], [1, 2])
    assert read(write(tmp_path, *killed, step(10, 3)))["loss"] == Series([10], [3])


def test_repeated_lines_count_once(tmp_path: Path) -> None:
    lines = [line for update in (10, 20) for line in [step(update, update)] * 3 + [validation(update, bleu=update)] * 3]
    found = read(write(tmp_path, *lines))
    assert found["loss"] == found["valid_bleu"] == Series([10, 20], [10, 20])


@pytest.mark.parametrize("kept", range(1, len(step(20, 8)), 7))
def test_an_incomplete_line_is_skipped(kept: int, tmp_path: Path) -> None:
    cut = step(20, 8)[:kept]
    assert read(write(tmp_path, step(10, 9), cut))["loss"] == Series([10], [9])
    # A resumed run appends to the same line.
    assert read(write(tmp_path, step(10, 9), cut + step(20, 7)))["loss"] == Series([10, 20], [9, 7])


def test_values_that_are_not_numbers_are_skipped_and_nan_is_kept(tmp_path: Path) -> None:
    lines = [
        step(10, 9),
        '{"epoch": 1, "loss": "nan", "gnorm": null, "num_updates": "20"}',
        '{"num_updates": null}',
        "[1]",
    ]
    found = read(write(tmp_path, *lines))
    assert found["loss"].updates == [10, 20]
    assert math.isnan(found["loss"].values[1])
    assert "gnorm" not in found


def test_smoothing_is_a_weighted_mean() -> None:
    series = Series([1, 2, 3], [4.0, 1.0, 7.0])
    assert smoothed(series, 0) == series
    assert_allclose(smoothed(series, 0.5).values, [4, (0.5 * 4 + 1) / 1.5, (0.25 * 4 + 0.5 * 1 + 7) / 1.75])


def lines_of(figure: Any) -> dict[str, dict[str, tuple[list[float], list[float]]]]:
    """The drawn values, by panel and run."""
    return {
        axis.get_ylabel(): {line.get_label(): (list(line.get_xdata()), list(line.get_ydata())) for line in axis.lines}
        for axis in figure.axes
        if axis.get_visible()
    }


def test_a_panel_for_each_value_and_a_line_for_each_run(tmp_path: Path) -> None:
    with_bleu = read(write(tmp_path, step(10, 9), step(20, 7), validation(20, loss=5, ppl=8, bleu=3)))
    without = read(write(tmp_path, step(10, 6), validation(10, loss=4, ppl=7)))
    runs = {ODD: with_bleu, "b": without}
    figure = curves_picture.draw(runs, subset="valid", smooth=0.5)
    figure.draw_without_rendering()
    assert lines_of(figure) == {
        "training loss (base 2)": {ODD: ([10, 20], [9, (4.5 + 7) / 1.5]), "b": ([10], [6])},
        "valid loss (base 2)": {ODD: ([20], [5]), "b": ([10], [4])},
        "valid perplexity": {ODD: ([20], [8]), "b": ([10], [7])},
        "valid BLEU, as logged": {ODD: ([20], [3]), "b": ([], [])},
    }
    assert [text.get_text() for text in figure.legends[0].get_texts()] == [ODD, "b"]
    assert set(lines_of(curves_picture.draw({"b": without}, subset="valid", smooth=0))) == {
        "training loss (base 2)",
        "valid loss (base 2)",
        "valid perplexity",
    }


def test_hours_are_those_of_the_updates_that_a_resumed_run_has_made(tmp_path: Path) -> None:
    killed = [step(10, 9, train_wall=3600), validation(15, ppl=8), step(20, 7, train_wall=7200), validation(25, ppl=1)]
    # "train_wall" of an epoch's line is not that of the others.
    resumed = [step(20, 6, train_wall=1800), validation(20, subset="train", wall=9), step(30, 5, train_wall=3600)]
    run = read(write(tmp_path, *killed, *resumed, validation(30, ppl=4)))
    figure = curves_picture.draw({"a": run}, subset="valid", smooth=0, hours=True)
    assert lines_of(figure) == {
        "training loss (base 2)": {"a": ([1, 1.5, 2.5], [9, 6, 5])},
        "valid perplexity": {"a": ([1.25, 2.5], [8, 4])},
    }
    assert {axis.get_xlabel() for axis in figure.axes} == {"hours of training"}


def test_short_trainings_are_drawn_in_minutes_and_their_perplexities_without_powers_of_ten(tmp_path: Path) -> None:
    run = read(write(tmp_path, step(10, 9, train_wall=360), validation(10, ppl=90), validation(15, ppl=40)))
    figure = curves_picture.draw({"fastformer": run}, subset="valid", smooth=0, hours=True)
    assert lines_of(figure)["training loss (base 2)"] == {"fastformer": ([6], [9])}
    loss, perplexity = figure.axes[:2]
    assert perplexity.get_xlabel() == "minutes of training"
    figure.draw_without_rendering()
    low, high = perplexity.get_ylim()
    labels = [
        label.get_text() for label in perplexity.get_yticklabels(which="both") if low < label.get_position()[1] < high
    ]
    assert labels == ["50", "70"]
    assert {axis.lines[0].get_color() for axis in (loss, perplexity)} == {COLOURS["fastformer"]}


def test_the_script_draws_several_runs(real_log: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from matplotlib import image

    other = write(tmp_path, step(10, 9), validation(10, ppl=math.nan), validation(20, ppl=4.5, bleu=3.25))
    output = tmp_path / "curves.png"
    assert plot_curves.main([str(real_log), f"other={other}", "--smooth=0.9", "--output", str(output)]) == 0
    first, second, last = capsys.readouterr().out.splitlines()
    best = min(zip(read(real_log)["valid_ppl"].values, [8, 16, 24], strict=True))
    assert first == f"{real_log.parent.name}: 24 updates, best valid_ppl {best[0]:g} at {best[1]}"
    assert second == "other: 20 updates, best valid_ppl 4.5 at 20, best valid_bleu 3.25 at 20"
    assert last == f"{output}: 2 runs"
    assert image.imread(output)[..., :3].std() > 0.05
    assert sorted(path.name for path in tmp_path.iterdir()) == ["curves.png", "log.json"]


def test_a_log_may_have_an_equals_sign_in_its_name(tmp_path: Path) -> None:
    odd = write(tmp_path, step(10, 9), name="lr=1.json")
    assert plot_curves.named(str(odd)) == (tmp_path.name, odd)
    assert plot_curves.named(f"run={odd}") == ("run", odd)


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["none.json"], "none.json: No such file or directory"),
        (["a=none.json"], "none.json: No such file or directory"),
        (["=log.json"], "=log.json: give LOG or NAME=LOG"),
        (["simple.log"], "simple.log: no JSON lines of fairseq-train's; train with --log-format json --log-file FILE"),
        (["log.json", "log.json"], "is the name of two runs; give NAME=log.json"),
        (["log.json", "--smooth=1"], "--smooth 1.0: must be at least 0 and less than 1"),
        (["log.json", "--against=hours"], "log.json: no train_wall for --against hours"),
        (["lr.json"], "--subset valid: none of the logs has a loss, a perplexity or BLEU"),
        (["log.json", "--output=curves.svg"], "--output curves.svg: the name must end in .png"),
        (["log.json", "--output=old.png"], "--output old.png: it exists; give another name, or --force"),
        (["log.json", "--output=no/curves.png"], "--output no/curves.png: there is no folder no"),
        (["log.json", "--output=folder.png"], "--output folder.png: is a folder; name a file in it"),
    ],
)
def test_bad_input_is_refused_in_one_line_and_writes_nothing(
    arguments: list[str],
    complaint: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    write(tmp_path, step(10, 9))
    write(tmp_path, CONFIG, "epoch 001: | loss 3 | num_updates 10", name="simple.log")
    write(tmp_path, '{"epoch": 1, "lr": "0.1", "num_updates": "10"}', name="lr.json")
    write(tmp_path, "mine", name="old.png")
    (tmp_path / "folder.png").mkdir()
    before = sorted(tmp_path.rglob("*"))
    assert plot_curves.main(["--output=curves.png", *arguments]) == 2
    (said,) = capsys.readouterr().err.splitlines()
    assert said.startswith("plot_curves.py: ")
    assert complaint in said
    assert sorted(tmp_path.rglob("*")) == before
    assert Path("old.png").read_text() == "mine\n"


def test_force_replaces_and_a_failed_picture_keeps_the_old_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log, output = write(tmp_path, step(10, 9)), write(tmp_path, "old", name="curves.png")
    arguments = [str(log), "--force", "--output", str(output)]

    def full(figure: Any, target: Path, **kwargs: Any) -> None:
        target.write_bytes(b"half")
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("matplotlib.figure.Figure.savefig", full)
        assert plot_curves.main(arguments) == 1
    assert output.read_text() == "old\n"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["curves.png", "log.json"]
    assert plot_curves.main(arguments) == 0
    assert output.read_bytes().startswith(b"\x89PNG")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["curves.png", "log.json"]


def test_an_empty_log_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no JSON lines"):
        read(write(tmp_path))
