"""Times of several systems, measured in turn, and their ratios."""

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import torch

from .command import Column, Row

Step = Callable[[], object]


class Seconds(NamedTuple):
    """Wall-clock time, and CPU time of this process summed over its threads.

    Other work on the machine increases the first and hardly the second. CPU time does not include a CUDA device's.
    """

    wall: float
    cpu: float

    def __sub__(self, earlier: "Seconds") -> "Seconds":
        return Seconds(self.wall - earlier.wall, self.cpu - earlier.cpu)

    def __truediv__(self, by: float) -> "Seconds":
        return Seconds(self.wall / by, self.cpu / by)


Stopwatch = Callable[[Step], Seconds]


class Spread(NamedTuple):
    """A median and the quartiles around it."""

    median: float
    q1: float
    q3: float


def spread(values: Sequence[float]) -> Spread:
    """Median and quartiles of one or more values."""
    if len(values) == 1:
        return Spread(values[0], values[0], values[0])
    q1, median, q3 = statistics.quantiles(values, n=4, method="inclusive")
    return Spread(median, q1, q3)


def now(device: str) -> Seconds:
    """Both clocks, after synchronising with the device."""
    if device == "cuda":
        torch.cuda.synchronize()
    return Seconds(time.perf_counter(), time.process_time())


def stopwatch(device: str) -> Stopwatch:
    """A function that measures a step, including the device's work."""

    def seconds(step: Step) -> Seconds:
        start = now(device)
        step()
        return now(device) - start

    return seconds


def warm_up(steps: Mapping[str, Step], times: int) -> None:
    """Run every step ``times`` times, unmeasured."""
    for _ in range(times):
        for step in steps.values():
            step()


def in_turn(steps: Mapping[str, Step], *, rounds: int, seconds: Stopwatch) -> dict[str, list[Seconds]]:
    """The times of each step, one for each round.

    A round runs every step once, so that a change of the machine's speed affects all of them; every second round is in
    reverse order.
    """
    taken: dict[str, list[Seconds]] = {name: [] for name in steps}
    for number in range(rounds):
        for name in list(steps) if number % 2 == 0 else reversed(list(steps)):
            taken[name].append(seconds(steps[name]))
    return taken


def ratios(own: Sequence[float], other: Sequence[float]) -> list[float]:
    """The ratio of two systems' times in each round."""
    return [one / two for one, two in zip(own, other, strict=True)]


def walls(taken: Sequence[Seconds]) -> list[float]:
    return [seconds.wall for seconds in taken]


def compared(taken: Mapping[str, Sequence[Seconds]], reference: str) -> dict[str, Row]:
    """Milliseconds of each system and their ratio to the reference's, with quartiles."""
    of_reference = list(zip(*taken[reference], strict=True))
    rows: dict[str, Row] = {}
    for name, seconds in taken.items():
        rows[name] = {"system": name, "reference": reference}
        for clock, values, other in zip(("", "cpu_"), zip(*seconds, strict=True), of_reference, strict=True):
            milliseconds = [1000 * value for value in values]
            rows[name] |= named(f"{clock}ms", spread(milliseconds))
            rows[name] |= named(f"{clock}ratio", spread(ratios(values, other)))
            rows[name][f"{clock}ms_rounds"] = milliseconds
    return rows


def named(key: str, values: Spread) -> Row:
    """The median and the quartiles as entries of a row."""
    return {key: values.median, f"{key}_q1": values.q1, f"{key}_q3": values.q3}


def time_columns(reference: str) -> list[Column]:
    """The columns of :func:`compared`."""

    def with_quartiles(key: str, digits: int) -> Callable[[Row], str]:
        return lambda row: f"{row[key]:.{digits}f} ({row[key + '_q1']:.{digits}f} to {row[key + '_q3']:.{digits}f})"

    return [
        Column("ms, median (quartiles)", with_quartiles("ms", 1)),
        Column(f"time / {reference} (quartiles)", with_quartiles("ratio", 2)),
        Column("CPU ms", lambda row: f"{row['cpu_ms']:.1f}"),
        Column(f"CPU time / {reference}", lambda row: f"{row['cpu_ratio']:.2f}"),
    ]
