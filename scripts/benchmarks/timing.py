"""Seconds of several systems, taken in turn, and how they compare."""

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import torch

from .command import Column, Row

Step = Callable[[], object]


class Seconds(NamedTuple):
    """Of the clock on the wall, and of the processor in this process alone, its threads added up.

    Other work on the machine lengthens the first and hardly the second; where they differ, something else ran. With a
    CUDA device the second says nothing of the device.
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
    """Both clocks, once the device has done all that it was given."""
    if device == "cuda":
        torch.cuda.synchronize()
    return Seconds(time.perf_counter(), time.process_time())


def stopwatch(device: str) -> Stopwatch:
    """What gives the seconds that a step takes, until the device has done it."""

    def seconds(step: Step) -> Seconds:
        start = now(device)
        step()
        return now(device) - start

    return seconds


def warm_up(steps: Mapping[str, Step], times: int) -> None:
    """Take every step ``times`` times, unmeasured."""
    for _ in range(times):
        for step in steps.values():
            step()


def in_turn(steps: Mapping[str, Step], *, rounds: int, seconds: Stopwatch) -> dict[str, list[Seconds]]:
    """Seconds of each step in each round.

    A round takes every step once, so that a change of the machine's speed strikes all of them alike; every second
    round goes backwards, so that none is always the later one.
    """
    taken: dict[str, list[Seconds]] = {name: [] for name in steps}
    for number in range(rounds):
        for name in list(steps) if number % 2 == 0 else reversed(list(steps)):
            taken[name].append(seconds(steps[name]))
    return taken


def ratios(own: Sequence[float], other: Sequence[float]) -> list[float]:
    """Of two systems' times, within each round."""
    return [one / two for one, two in zip(own, other, strict=True)]


def walls(taken: Sequence[Seconds]) -> list[float]:
    return [seconds.wall for seconds in taken]


def compared(taken: Mapping[str, Sequence[Seconds]], reference: str) -> dict[str, Row]:
    """Milliseconds of each system, and the ratio of its time to the reference's, each with its quartiles."""
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
    """The three numbers as a row has them."""
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
