"""Measure every system beside its peers, in turn, in one process.

    python scripts/benchmark.py op            the causal attentions alone, forward and backward
    python scripts/benchmark.py train         a training step of whole models
    python scripts/benchmark.py generate      beam search
    python scripts/benchmark.py optimizer     a step of Apollo

Each round takes every system once; what is printed are medians and quartiles over the rounds, and the median ratio to
a reference within a round, which stays true where other work makes the machine slow for a while. Peak memory is that
of a process that does one step. "COMMAND --help" lists its flags.
"""

import logging
import os
import sys
import warnings
from argparse import Namespace, RawDescriptionHelpFormatter

if __name__ in ("__main__", "__mp_main__"):  # as a program, or in a process that one has started
    os.environ.setdefault("LOGLEVEL", "WARNING")  # fairseq reads it when it is imported
    logging.disable(logging.WARNING)
    warnings.simplefilter("ignore")

import torch

from benchmarks import generate, goals, op, optimizer, report, train
from benchmarks.arguments import OneLineParser
from benchmarks.command import Command, CommandError, Row
from benchmarks.memory import is_out_of_memory
from fairseq_luna.usage_error import UsageError

COMMANDS = {"op": op.COMMAND, "train": train.COMMAND, "generate": generate.COMMAND, "optimizer": optimizer.COMMAND}


def main() -> int:
    args = parse_arguments()
    command = COMMANDS[args.command]
    try:
        command.check(args)
        torch.set_num_threads(args.threads)
        return measure(command, args)
    except (CommandError, UsageError) as refusal:
        print(f"benchmark.py: {refusal}", file=sys.stderr)
        return 2
    except (RuntimeError, MemoryError) as error:
        if not is_out_of_memory(error):
            raise
        print(
            "benchmark.py: memory does not suffice; what was measured before is kept: leave out the longest length, or "
            "with --systems what grows fastest",
            file=sys.stderr,
        )
        return 1


def parse_arguments() -> Namespace:
    parser = OneLineParser(description=__doc__, formatter_class=RawDescriptionHelpFormatter)
    subparsers = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name, command in COMMANDS.items():
        command.add_arguments(subparsers.add_parser(name, help=command.help))
    args = parser.parse_args()
    if args.quick:
        subparsers.choices[args.command].set_defaults(**COMMANDS[args.command].quick)
        args = parser.parse_args()
    return args


def measure(command: Command, args: Namespace) -> int:
    """Print a row as soon as it is measured, and write what there is even when it is stopped."""
    where = report.environment(args)
    columns = command.columns(args)
    rows: list[Row] = []
    finished = False
    try:
        for row in command.rows(args):
            if not rows:
                print(f"{command.title(args)}\n{report.heading(where)}\n\n{report.head(columns)}")
            rows.append(row)
            print(report.line(columns, row), flush=True)
        finished = True
    except KeyboardInterrupt:
        print("\nbenchmark.py: stopped; what was measured is kept", file=sys.stderr)
        return 130
    finally:
        if rows and args.json:
            report.write_json(args.json, where, args, rows, finished)
        if rows and args.png:
            report.draw(args.png, command.panels, rows)
    if goals.summary(rows):
        print(f"\n{goals.summary(rows)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
