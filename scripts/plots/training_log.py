"""Reading the JSON log of fairseq-train: losses and BLEU at each logged update."""

import json
from collections.abc import Mapping, Sequence
from itertools import accumulate
from pathlib import Path
from typing import NamedTuple

import numpy as np

from fairseq_luna.commands.command_line import CommandError

HOURS = "hours"


class Series(NamedTuple):
    """One value over the training; updates are ascending."""

    updates: list[int]
    values: list[float]


class _Line(NamedTuple):
    prefix: str  # "" during an epoch, "train_" for a whole epoch, "valid_" or the subset's name for a validation
    update: int
    values: dict[str, float]


def read(log: Path) -> dict[str, Series]:
    """Every number of a log by its name: "loss" is the training's, "valid_loss" and "valid_bleu" are a validation's.

    "hours" is the time of the updates up to there, without validations, if the log has it: a sum of what fairseq rounds
    to seconds, so that its lines should be many seconds apart.

    Lines that are not JSON, such as the configuration or an incomplete last line, are skipped; repeated lines count
    once. A run that resumes from an older checkpoint repeats updates; its values replace everything that the stopped
    run logged from there on.

    Args:
        log: the file of --log-file, or the output of fairseq-train.

    Raises:
        CommandError: no line is fairseq's JSON.
        OSError: the file cannot be read.
    """
    lines: list[_Line] = []
    with log.open(encoding="utf-8", errors="replace") as text:
        for parsed in filter(None, map(_parse, text)):
            while lines and lines[-1].update > parsed.update:
                lines.pop()
            lines.append(parsed)
    if not lines:
        raise CommandError(
            f"{log}: no JSON lines of fairseq-train's; train with --log-format json --log-file FILE and give that FILE"
        )
    found: dict[str, dict[int, float]] = {}
    for parsed in lines:
        for name, value in parsed.values.items():
            found.setdefault(parsed.prefix + name, {})[parsed.update] = value
    # Not from ``found``: in the line of an epoch, "train_wall" is the time since the process began.
    wall = {line.update: line.values["train_wall"] for line in lines if not line.prefix and "train_wall" in line.values}
    if wall:
        found[HOURS] = dict(zip(wall, (seconds / 3600 for seconds in accumulate(wall.values())), strict=True))
    return {name: Series(list(points), list(points.values())) for name, points in found.items()}


def hours_at(run: Mapping[str, Series], updates: Sequence[int]) -> list[float]:
    """The hours that ``run``, which has them, had trained at each of ``updates``."""
    hours = run[HOURS]
    return [float(hour) for hour in np.interp(updates, [0, *hours.updates], [0.0, *hours.values])]


def smoothed(series: Series, share: float) -> Series:
    """The running mean of ``series``, in which each point has ``share`` times the weight of the next one.

    Args:
        series: its points are equally spaced, whatever their updates.
        share: at least 0 (unchanged) and less than 1.
    """
    values: list[float] = []
    total = weight = 0.0
    for value in series.values:
        total, weight = share * total + value, share * weight + 1
        values.append(total / weight)
    return Series(series.updates, values)


def _parse(line: str) -> _Line | None:
    """The values of one line; None if it is not fairseq's or incomplete."""
    # Printed lines have the time and the logger's name first, and perhaps an incomplete line of a killed run.
    start = line.rfind("{")
    if start < 0:
        return None
    try:
        found = json.loads(line[start:])
    except ValueError:
        return None
    if not isinstance(found, dict):
        return None
    numbers = {name: number for name, value in found.items() if (number := _number(value)) is not None}
    counted = next((name for name in numbers if name.endswith("num_updates")), None)
    if counted is None:
        return None
    prefix = counted.removesuffix("num_updates")
    values = {name.removeprefix(prefix): value for name, value in numbers.items() if name.startswith(prefix)}
    return _Line(prefix, int(numbers[counted]), values)


def _number(value: object) -> float | None:
    """fairseq writes most numbers as strings; some values are not numbers."""
    try:
        return float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return None
