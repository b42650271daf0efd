"""Measure each system beside its peers, in turn, in one process.

    python scripts/benchmark.py op            attentions alone, forward and backward
    python scripts/benchmark.py train         a training step of whole models
    python scripts/benchmark.py generate      beam search
    python scripts/benchmark.py optimizer     a step of Apollo and of Adam
    python scripts/benchmark.py launches      operators of a training step and of a decoding step
    python scripts/benchmark.py update        launches of an update of the parameters, in each precision

Each round runs every system once. Printed are medians and quartiles over the rounds, and the median ratio to a
reference within a round, which is robust when other work slows the machine for a while. Peak memory is the peak of a
process that runs one step; with --memory only that is measured. "COMMAND --help" lists its flags.
"""

import datetime
import json
import logging
import os
import platform
import re
import shlex
import sys
import warnings
from argparse import Namespace
from collections.abc import Iterable, Sequence
from pathlib import Path
from types import ModuleType

if __name__ in ("__main__", "__mp_main__"):  # as a program, or in a process that one has started
    os.environ.setdefault("LOGLEVEL", "WARNING")  # fairseq reads it when it is imported
    logging.disable(logging.WARNING)
    warnings.simplefilter("ignore")

import torch

from benchmarks import generate, launches, op, optimizer, train, update
from benchmarks.flags import Row, add_common, check_common
from benchmarks.memory import is_out_of_memory
from fairseq_luna.command_line import CommandError, Parser, command
from fairseq_luna.environment import fairseq_distribution
from fairseq_luna.files import atomic_write

# Each measures its SYSTEMS, and VARIANTS that --systems names; COLUMNS are the heading and the format of a cell.
COMMANDS = {module.__name__.rpartition(".")[2]: module for module in (op, train, generate, optimizer, launches, update)}


@command
def main(arguments: Sequence[str] | None = None) -> None:
    args = parse(arguments)
    chosen = COMMANDS[args.command]
    check_common(args)
    if hasattr(chosen, "check"):
        chosen.check(args)
    torch.set_num_threads(args.threads)
    try:
        measure(chosen, args)
    except (RuntimeError, MemoryError) as error:
        if not is_out_of_memory(error):
            raise
        message = "out of memory; earlier measurements are kept: leave out the longest length or the largest system"
        raise CommandError(message, status=1) from error


def parse(arguments: Sequence[str] | None) -> Namespace:
    parser = Parser(__doc__)
    subparsers = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name, chosen in COMMANDS.items():
        about = chosen.__doc__ or ""
        own = subparsers.add_parser(name, help=about.partition("\n")[0], description=about)
        add_common(own, chosen)
        chosen.add_arguments(own)
    return parser.parse_args(arguments)


def measure(chosen: ModuleType, args: Namespace) -> None:
    """Print each row when it is measured; the file is written even if the measurement is stopped."""
    flags = {name: value if isinstance(value, int | None) else str(value) for name, value in vars(args).items()}
    content = {"environment": environment(args), "settings": flags, "finished": False, "rows": list[Row]()}
    print("; ".join(f"{name} {value}" for name, value in {**content["environment"], **flags}.items()))
    print(f"\n{line(chosen.COLUMNS)}\n{line(['---'] * len(chosen.COLUMNS))}")
    try:
        for row in chosen.rows(args):
            content["rows"].append(row)
            print(line(cell(template, row) for template in chosen.COLUMNS.values()), flush=True)
        content["finished"] = True
    finally:
        if args.json and content["rows"]:
            with atomic_write(args.json) as unfinished:
                unfinished.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")


def environment(args: Namespace) -> Row:
    """Describe the machine and the versions that the numbers depend on."""
    cpu = re.search(r"^model name\s*:\s*(.+)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    return {
        "command": shlex.join(["python", "scripts/benchmark.py", *sys.argv[1:]]),
        "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        "machine": torch.cuda.get_device_name() if args.device == "cuda" else cpu[1] if cpu else platform.machine(),
        "cores": os.cpu_count(),
        "load": os.getloadavg()[0],  # with more than the idle cores, only the ratios are meaningful
        **{"torch": torch.__version__, "fairseq": fairseq_distribution(), "python": platform.python_version()},
    }


def line(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def cell(template: str, row: Row) -> str:
    """Empty if the row has no such value."""
    try:
        return template.format_map({key: value for key, value in row.items() if value is not None})
    except KeyError:
        return ""


if __name__ == "__main__":
    sys.exit(main())
