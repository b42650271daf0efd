"""What fairseq-train logs with --log-format json: losses and BLEU at each logged update."""

import json
from pathlib import Path
from typing import NamedTuple

from shared.command import CommandError


class Series(NamedTuple):
    """One value over the training; updates rise."""

    updates: list[int]
    values: list[float]


class _Line(NamedTuple):
    prefix: str  # "" during an epoch, "train_" of a whole epoch, "valid_" or the subset's name of a validation
    update: int
    values: dict[str, float]


def read(log: Path) -> dict[str, Series]:
    """Every number of a log by its name: "loss" is the training's, "valid_loss", "valid_bleu" a validation's.

    Lines that are no JSON are skipped, such as the configuration, and a last one that is cut off. fairseq writes
    some lines more than once: they count once. A run that was stopped and went on from an older checkpoint repeats
    updates; what was logged later holds, and everything that the stopped run logged from there on is left out.

    Args:
        log: --log-file's file, or what fairseq-train printed.

    Raises:
        CommandError: the file cannot be read, or no line of it is fairseq's JSON.
    """
    if not log.is_file():
        raise CommandError(f"{log}: there is no such file")
    lines: list[_Line] = []
    try:
        with log.open(encoding="utf-8", errors="replace") as text:
            for line in text:
                parsed = _parse(line)
                if parsed is None:
                    continue
                while lines and lines[-1].update > parsed.update:
                    lines.pop()
                lines.append(parsed)
    except OSError as error:
        raise CommandError(f"{log}: {error.strerror or error}") from error
    if not lines:
        raise CommandError(
            f"{log}: no JSON lines of fairseq-train's; train with --log-format json --log-file FILE and give that FILE"
        )
    found: dict[str, dict[int, float]] = {}
    for parsed in lines:
        for name, value in parsed.values.items():
            found.setdefault(parsed.prefix + name, {})[parsed.update] = value
    return {name: Series(list(points), list(points.values())) for name, points in found.items()}


def smoothed(series: Series, share: float) -> Series:
    """The running mean of ``series`` in which each point counts ``share`` times as much as the one after it.

    Args:
        series: without gaps of meaning: points are taken one after the other, whatever the updates between them.
        share: at least 0 (as logged) and less than 1.
    """
    values: list[float] = []
    total = weight = 0.0
    for value in series.values:
        total, weight = share * total + value, share * weight + 1
        values.append(total / weight)
    return Series(series.updates, values)


def _parse(line: str) -> _Line | None:
    """What one line says; None where it is not fairseq's, or cut off."""
    # A captured output has the time and the logger's name before it; a line that a kill cut off, perhaps, too.
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
    """fairseq writes most numbers as strings, and some values are none."""
    try:
        return float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return None
