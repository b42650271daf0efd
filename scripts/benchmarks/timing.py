"""The times of several systems, measured in turn, and their ratios within a round.

torch.utils.benchmark has the clock, which waits for a CUDA device. Its Timer would run one system after the other, so
that other work which slows the machine for a while would change their ratio.
"""

import statistics
import time
from argparse import Namespace
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from torch.utils.benchmark import timer

from .flags import Row
from .memory import peak_mib

Step = Callable[[], object]
# Wall-clock time, and CPU time of this process summed over its threads. Other work on the machine increases the first
# and hardly the second, which has no CUDA device's time.
Seconds = tuple[float, float]

TIMES = {
    "ms, median (quartiles)": "{ms:.1f} ({ms_q1:.1f} to {ms_q3:.1f})",
    "time / reference (quartiles)": "{ratio:.2f} ({ratio_q1:.2f} to {ratio_q3:.2f})",
    **{"CPU ms": "{cpu_ms:.1f}", "CPU time / reference": "{cpu_ratio:.2f}"},
}
MEMORY = {"peak MiB": "{peak_mib:,.1f}", "peak / reference": "{peak_ratio:.2f}"}


def seconds(step: Step) -> Seconds:
    wall, cpu = timer(), time.process_time()
    step()
    return timer() - wall, time.process_time() - cpu


def measured(
    args: Namespace, prepare: Callable[[str], Step], again: Callable[..., Step], *given: Any, warm_up: int | None = None
) -> Iterator[Row]:
    """A row for each system: its times, unless only memory is measured, and its peak memory, unless that is left out.

    Args:
        prepare: makes the step of a system.
        again: does so in a fresh process, with ``given`` after the system's name; it is pickled.
        warm_up: rounds before the measured ones, in place of --warm-up.
    """
    rows: dict[str, Row] = {name: {"system": name, "reference": args.reference} for name in args.systems}
    if not args.memory:
        steps = {name: prepare(name) for name in args.systems}
        for step in list(steps.values()) * (args.warm_up if warm_up is None else warm_up):
            step()
        rows = compared(in_turn(steps, args.rounds), args.reference)
        del steps
    of_reference = None
    for name in sorted(rows, key=lambda name: name != args.reference):  # the others are compared with it
        if not args.no_peak:
            peak = peak_mib(again, name, *given, device=args.device, threads=args.threads)
            of_reference = peak if name == args.reference else of_reference
            rows[name]["peak_mib"] = peak
            rows[name]["peak_ratio"] = peak / of_reference if peak and of_reference else None
        yield rows[name]


def in_turn(steps: Mapping[str, Step], rounds: int) -> dict[str, list[Seconds]]:
    """The times of each step, one for each round.

    A round runs every step once, so that a change of the machine's speed affects all of them; every second round is in
    reverse order.
    """
    taken: dict[str, list[Seconds]] = {name: [] for name in steps}
    for number in range(rounds):
        for name in list(steps) if number % 2 == 0 else reversed(list(steps)):
            taken[name].append(seconds(steps[name]))
    return taken


def compared(taken: Mapping[str, Sequence[Seconds]], reference: str) -> dict[str, Row]:
    """Milliseconds of each system and their ratio to the reference's in the same round: medians and quartiles."""
    rows: dict[str, Row] = {}
    for name, rounds in taken.items():
        rows[name] = {"system": name, "reference": reference}
        for number, clock in enumerate(("", "cpu_")):
            values, others = ([each[number] for each in times] for times in (rounds, taken[reference]))
            rows[name] |= spread(f"{clock}ms", [1000 * value for value in values])
            rows[name] |= spread(f"{clock}ratio", [one / two for one, two in zip(values, others, strict=True)])
    return rows


def spread(key: str, values: Sequence[float]) -> Row:
    """The median, the quartiles and all values, as entries of a row."""
    q1, median, q3 = [*values] * 3 if len(values) == 1 else statistics.quantiles(values, n=4, method="inclusive")
    return {key: median, f"{key}_q1": q1, f"{key}_q3": q3, f"{key}_rounds": list(values)}
