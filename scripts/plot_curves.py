"""Draw training loss, validation loss, perplexity and BLEU of several runs against updates or hours.

    python scripts/plot_curves.py luna=luna/log.json fastformer=fastformer/log.json --output curves.png
    python scripts/plot_curves.py luna=luna/log.json block=block/log.json --against hours --output hours.png

Hours, or minutes if they are at most two hours, are of updates only, without validations; those that a resumed run
repeats count once. A log is what fairseq-train writes with --log-format json --log-file FILE, or the same lines as it
prints them.
"""

import json
import sys
from collections.abc import Mapping, Sequence
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np

from fairseq_luna.command_line import CommandError, Parser, command
from shared import picture

# What is drawn, by its name in the log.
PANELS = {
    "loss": "training loss (base 2)",
    "valid_loss": "valid loss (base 2)",
    "valid_ppl": "valid perplexity",
    "valid_bleu": "valid BLEU, as logged",
}
HOURS = "hours"
WALL = "train_wall"  # seconds of the updates since the line before
Run = dict[str, dict[int, float]]  # each value by its name and the number of updates


@command
def main(arguments: Sequence[str] | None = None) -> None:
    parser = Parser(__doc__)
    parser.add_argument("logs", nargs="+", metavar="[NAME=]LOG", help="a run's log (default name: its folder)")
    parser.add_argument("--against", choices=("updates", HOURS), default="updates", help="default: updates")
    picture.add_arguments(parser)
    args = parser.parse_args(arguments)
    picture.check_output(args.output, force=args.force)
    runs: dict[str, Run] = {}
    for given in args.logs:
        name, log = named(given)
        if name in runs:
            raise CommandError(f"{given}: {name} is the name of two runs; give NAME={log}")
        runs[name] = read(log)
        if args.against == HOURS and HOURS not in runs[name]:
            raise CommandError(f"{log}: no {WALL} for --against hours; fairseq-train logs it every --log-interval")
    picture.save(draw(runs, hours=args.against == HOURS), args.output)


def named(given: str) -> tuple[str, Path]:
    """The name of a run and its log, from ``NAME=LOG`` or from ``LOG``, which is named after its folder."""
    name, sign, log = given.partition("=")
    if sign and not Path(given).is_file():
        return name, Path(log)
    return Path(given).absolute().parent.name, Path(given)


def read(log: Path) -> Run:
    """The values of PANELS and, if the log has times, the hours of training.

    A run that resumes from an older checkpoint repeats updates; its values replace everything that the stopped run
    logged from there on. Lines that are not JSON, such as an incomplete last line, are skipped.

    Raises:
        CommandError: no line is fairseq's JSON.
    """
    lines: list[tuple[int, dict[str, float]]] = []
    with log.open(encoding="utf-8", errors="replace") as text:
        for found in filter(None, map(parse, text)):
            while lines and lines[-1][0] > found[0]:
                lines.pop()
            lines.append(found)
    if not lines:
        raise CommandError(
            f"{log}: no JSON lines of fairseq-train's; train with --log-format json --log-file FILE and give that FILE"
        )
    run: Run = {}
    for update, values in lines:
        for name, value in values.items():
            run.setdefault(name, {})[update] = value
    if wall := run.pop(WALL, None):
        run[HOURS] = dict(zip(wall, accumulate(seconds / 3600 for seconds in wall.values()), strict=True))
    return run


def parse(line: str) -> tuple[int, dict[str, float]] | None:
    """The update and the values of one line of an update or a validation; None for others."""
    # Printed lines have the time and the logger's name first, and perhaps an incomplete line of a killed run.
    try:
        found = json.loads(line[line.rindex("{") :])
        update = int(found.get("num_updates") or found["valid_num_updates"])
    except (ValueError, KeyError):
        return None
    names = (*PANELS, WALL) if "num_updates" in found else PANELS  # in other lines that name is another time
    return update, {name: float(found[name]) for name in names if found.get(name) is not None}


def draw(runs: Mapping[str, Run], *, hours: bool = False) -> Any:
    """A figure with a panel for each value that a run has, and a colour for each run."""
    panels = [name for name in PANELS if any(name in run for run in runs.values())]
    rows = -(-len(panels) // 2)
    longest = max(max(run[HOURS].values()) for run in runs.values()) if hours else 0
    unit, scale = ("hours", 1) if longest > 2 else ("minutes", 60)
    figure, axes = picture.pyplot().subplots(rows, 2, squeeze=False, figsize=(10, 3.5 * rows), layout="constrained")
    for axis, panel in zip(axes.flat, panels, strict=False):
        for number, (name, run) in enumerate(runs.items()):
            points, colour = run.get(panel, {}), picture.COLOURS.get(name, f"C{number}")
            reached: Any = list(points)
            if hours:
                reached = scale * np.interp(reached, [0, *run[HOURS]], [0.0, *run[HOURS].values()])
            marker = "." if len(points) < 40 else None
            axis.plot(reached, [*points.values()], color=colour, marker=marker, label=name)
        axis.set(xlabel=f"{unit} of training" if hours else "updates", ylabel=PANELS[panel])
        axis.grid(True, alpha=0.3)
    for axis in axes.flat[len(panels) :]:
        axis.set_visible(False)
    figure.legend(*axes.flat[0].get_legend_handles_labels(), loc="outside upper center", ncols=4)
    return figure


if __name__ == "__main__":
    sys.exit(main())
