"""The environment of a measurement, the printed table, the JSON and the picture."""

import datetime
import json
import os
import platform
import re
import shlex
import sys
from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path

import torch

import fairseq_luna.environment
from fairseq_luna.commands.steps import complete
from fairseq_luna.environment import version_of
from shared import picture

from .arguments import settings
from .command import Column, Panel, Row


def environment(args: Namespace) -> Row:
    """What the numbers depend on besides the code."""
    return {
        "command": shlex.join(["python", "scripts/benchmark.py", *sys.argv[1:]]),
        "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "fairseq": fairseq_luna.environment.fairseq_distribution(),
        "fairseq_luna": version_of("fairseq-luna"),
        "platform": f"{platform.system()} {platform.machine()}",
        "cpu": cpu_model(),
        "cores": os.cpu_count(),
        "load": os.getloadavg()[0],  # with more than the idle cores, only the ratios are meaningful
        "threads": args.threads,
        "device": torch.cuda.get_device_name() if args.device == "cuda" else "cpu",
        "dtype": args.dtype,
    }


def cpu_model() -> str:
    """The processor's name, or its architecture if the system does not name it."""
    info = Path("/proc/cpuinfo")
    found = re.search(r"^model name\s*:\s*(.+)$", info.read_text(), re.MULTILINE) if info.exists() else None
    return found[1] if found else platform.processor() or platform.machine()


def heading(where: Row) -> str:
    """Two lines above a table."""
    return (
        f"{where['command']}\n"
        f"{where['date'][:10]}, {where['device']}, {where['dtype']}, {where['threads']} thread(s) of {where['cpu']} "
        f"({where['cores']} cores, load {where['load']:.1f}), torch {where['torch']}, {where['fairseq']}, "
        f"Python {where['python']}"
    )


def head(columns: Sequence[Column]) -> str:
    """The first two lines of a table in Markdown."""
    return f"{_line([column.heading for column in columns])}\n{_line(['---'] * len(columns))}"


def line(columns: Sequence[Column], row: Row) -> str:
    return _line([column.cell(row) for column in columns])


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def write_json(target: Path, where: Row, args: Namespace, rows: Sequence[Row], finished: bool) -> None:
    content = {"environment": where, "settings": settings(args), "finished": finished, "rows": list(rows)}
    with complete(target) as unfinished:
        unfinished.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")


def draw(target: Path, panels: Sequence[Panel], rows: Sequence[Row]) -> None:
    """A panel for each quantity, with a curve for each system against the length."""
    pyplot = picture.pyplot()
    from matplotlib.ticker import LogLocator, StrMethodFormatter

    measured = [panel for panel in panels if any(row.get(panel.key) is not None for row in rows)]
    figure, axes = pyplot.subplots(1, len(measured), figsize=(6 * len(measured), 4.5), layout="constrained")
    lengths = sorted({row["length"] for row in rows})
    for panel, axis in zip(measured, axes if len(measured) > 1 else [axes], strict=True):
        for system in dict.fromkeys(row["system"] for row in rows):
            points = [(row["length"], row[panel.key]) for row in rows if row["system"] == system and panel.key in row]
            points = sorted(point for point in points if point[1] is not None)
            if points:
                axis.plot(*zip(*points, strict=True), marker="o", label=system)
        axis.set(xscale="log", yscale="log", xlabel="length", ylabel=panel.label)
        axis.set_xticks(lengths, [str(length) for length in lengths])
        axis.minorticks_off()
        axis.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axis.yaxis.set_major_formatter(StrMethodFormatter("{x:,g}"))
        axis.grid(True, which="major", alpha=0.3)
        axis.legend()
    picture.save(figure, target)
