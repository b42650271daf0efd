"""Systems are measured in turn, and compared within a round."""

import time
from collections.abc import Callable

import pytest

from benchmarks import timing
from benchmarks.timing import Seconds


class Clock:
    """A machine on which other work slows each step, depending on its number."""

    def __init__(self, seconds: dict[str, float], slowness: Callable[[int], float]) -> None:
        self.seconds = seconds
        self.slowness = slowness
        self.order: list[str] = []

    def steps(self) -> dict[str, timing.Step]:
        return {name: lambda name=name: self.order.append(name) for name in self.seconds}

    def stopwatch(self, step: timing.Step) -> Seconds:
        slowness = self.slowness(len(self.order))
        step()
        own = self.seconds[self.order[-1]]
        return Seconds(slowness * own, own)


def test_a_round_runs_every_system_once_and_every_second_is_reversed() -> None:
    clock = Clock({"a": 1, "b": 2, "c": 3}, slowness=lambda number: 10**number)
    taken = timing.in_turn(clock.steps(), rounds=3, seconds=clock.stopwatch)
    assert clock.order == ["a", "b", "c", "c", "b", "a", "a", "b", "c"]
    assert [wall for wall, _ in taken["a"]] == [1, 10**5, 10**6]


def test_warm_up_runs_every_system_unmeasured() -> None:
    clock = Clock({"a": 1, "b": 2}, slowness=lambda _: 1)
    timing.warm_up(clock.steps(), 3)
    assert clock.order == ["a", "b"] * 3


def test_a_machine_that_slows_down_between_rounds_does_not_change_a_ratio() -> None:
    clock = Clock({"a": 3, "b": 2}, slowness=lambda number: 10 ** (number // 2))
    rows = timing.compared(timing.in_turn(clock.steps(), rounds=5, seconds=clock.stopwatch), "b")
    assert [rows["a"][key] for key in ("ratio", "ratio_q1", "ratio_q3")] == [1.5, 1.5, 1.5]
    assert rows["a"]["ms_q3"] == pytest.approx(100 * rows["a"]["ms_q1"])


def test_a_machine_that_slows_down_steadily_does_not_favour_the_first() -> None:
    clock = Clock({"a": 1, "b": 1, "c": 1}, slowness=lambda number: 1.1**number)
    rows = timing.compared(timing.in_turn(clock.steps(), rounds=4, seconds=clock.stopwatch), "a")
    assert rows["c"]["ratio"] == pytest.approx(1, abs=0.03)  # one order alone: 1.21


def test_other_work_changes_only_the_wall_clock() -> None:
    clock = Clock({"a": 3, "b": 2}, slowness=lambda number: 1 if number == 0 else 7)
    row = timing.compared(timing.in_turn(clock.steps(), rounds=1, seconds=clock.stopwatch), "b")["a"]
    assert (row["ms"], row["cpu_ms"], row["cpu_ratio"]) == (3000, 3000, 1.5)
    assert row["ratio"] == pytest.approx(3 / 14)


def test_sleeping_takes_no_cpu_time() -> None:
    taken = timing.stopwatch("cpu")(lambda: time.sleep(0.2))
    assert taken.wall >= 0.2
    assert taken.cpu < 0.1


def test_the_ratio_is_the_median_of_the_rounds_ratios() -> None:
    walls = {"a": [1, 10, 3], "b": [2, 2, 30]}
    row = timing.compared({name: [Seconds(wall, 1) for wall in values] for name, values in walls.items()}, "b")["a"]
    assert row["ratio"] == 0.5  # of 0.5, 5 and 0.1; the ratio of the medians is 1.5
    assert (row["ms"], row["ms_rounds"], row["reference"]) == (3000, [1000, 10000, 3000], "b")


def test_the_spread_is_the_quartiles() -> None:
    assert timing.spread([5, 1, 4, 2, 3]) == (3, 2, 4)
    assert timing.spread([7]) == (7, 7, 7)
