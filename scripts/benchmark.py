"""Measure each system beside its peers, in turn, in one process.

    python scripts/benchmark.py op            the causal attentions alone, forward and backward
    python scripts/benchmark.py encoder       the self-attentions of encoders by name, forward and backward
    python scripts/benchmark.py train         a training step of whole models
    python scripts/benchmark.py generate      beam search
    python scripts/benchmark.py optimizer     a step of Apollo
    python scripts/benchmark.py launches      operators of a training step and of a decoding step
    python scripts/benchmark.py imports       importing this package, in a fresh process

Each round runs every system once. Printed are medians and quartiles over the rounds, and the median ratio to a
reference within a round, which is robust when other work slows the machine for a while. Peak memory is that of a
process that runs one step. "COMMAND --help" lists its flags.
"""

import logging
import os
import sys
import warnings
from argparse import Namespace
from collections.abc import Sequence

if __name__ in ("__main__", "__mp_main__"):  # as a program, or in a process that one has started
    os.environ.setdefault("LOGLEVEL", "WARNING")  # fairseq reads it when it is imported
    logging.disable(logging.WARNING)
    warnings.simplefilter("ignore")

import torch

from benchmarks import encoder, generate, goals, imports, launches, op, optimizer, report, train
from benchmarks.command import Command, Row
from benchmarks.memory import is_out_of_memory
from fairseq_luna.commands.command_line import CommandError, Parser, command
from fairseq_luna.usage_error import UsageError

COMMANDS = {
    "op": op.COMMAND,
    "encoder": encoder.COMMAND,
    "train": train.COMMAND,
    "generate": generate.COMMAND,
    "optimizer": optimizer.COMMAND,
    "launches": launches.COMMAND,
    "imports": imports.COMMAND,
}


@command
def main(arguments: Sequence[str] | None = None) -> None:
    args = parse(arguments)
    chosen = COMMANDS[args.command]
    try:
        chosen.check(args)
        torch.set_num_threads(args.threads)
        measure(chosen, args)
    except UsageError as error:
        raise CommandError(str(error)) from error
    except (RuntimeError, MemoryError) as error:
        if not is_out_of_memory(error):
            raise
        message = "out of memory; earlier measurements are kept: leave out the longest length or the largest system"
        raise CommandError(message, status=1) from error


def parse(arguments: Sequence[str] | None) -> Namespace:
    parser = Parser(__doc__)
    subparsers = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name, chosen in COMMANDS.items():
        chosen.add_arguments(subparsers.add_parser(name, help=chosen.help, description=chosen.description))
    args = parser.parse_args(arguments)
    if args.quick:
        subparsers.choices[args.command].set_defaults(**COMMANDS[args.command].quick)
        args = parser.parse_args(arguments)
    return args


def measure(chosen: Command, args: Namespace) -> None:
    """Print each row when it is measured; the files are written even if the measurement is stopped."""
    where = report.environment(args)
    columns = chosen.columns(args)
    rows: list[Row] = []
    finished = False
    try:
        for row in chosen.rows(args):
            if not rows:
                print(f"{chosen.title(args)}\n{report.heading(where)}\n\n{report.head(columns)}")
            rows.append(row)
            print(report.line(columns, row), flush=True)
        finished = True
    finally:
        if rows and args.json:
            report.write_json(args.json, where, args, rows, finished)
        if rows and args.png:
            report.draw(args.png, chosen.panels, rows)
    if goals.summary(rows):
        print(f"\n{goals.summary(rows)}")


if __name__ == "__main__":
    sys.exit(main())
