"""The time of importing modules, each in a fresh process. --warm-up reads the files into the system's cache."""

import subprocess
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Iterator
from functools import partial

from .arguments import add_common, check_common
from .command import Column, Command, Row
from .timing import Seconds, compared, in_turn, time_columns, warm_up

MODULES = (
    *("torch", "fairseq", "fairseq_luna", "fairseq_luna.ops", "fairseq_luna.optim.apollo", "fairseq_luna.modules"),
    "fairseq_luna.models",
)
_PROGRAM = "import time; wall, cpu = time.perf_counter(), time.process_time(); import {module}; " + (
    "print(time.perf_counter() - wall, time.process_time() - cpu)"
)


def add_arguments(parser: ArgumentParser) -> None:
    add_common(parser, systems=MODULES, reference="torch", rounds=3, png=False, device=False)


def import_time(module: str) -> Seconds:
    program = [sys.executable, "-W", "ignore", "-c", _PROGRAM.format(module=module)]
    printed = subprocess.run(program, check=True, stdout=subprocess.PIPE, text=True).stdout
    return Seconds(*map(float, printed.split()[-2:]))


def rows(args: Namespace) -> Iterator[Row]:
    """One for each module."""
    steps: dict[str, Callable[[], Seconds]] = {module: partial(import_time, module) for module in args.systems}
    warm_up(steps, args.warm_up)
    yield from compared(in_turn(steps, rounds=args.rounds, seconds=lambda step: step()), args.reference).values()


def columns(args: Namespace) -> list[Column]:
    return [Column("module", lambda row: row["system"]), *time_columns(args.reference)]


COMMAND = Command(
    help="importing this package, beside torch and fairseq",
    description=__doc__,
    add_arguments=add_arguments,
    check=check_common,
    title=lambda args: f"Import in a fresh process; {args.rounds} rounds",
    rows=rows,
    columns=columns,
    quick={"rounds": 1, "warm_up": 0},
)
