"""Draw training loss, validation loss, perplexity and BLEU of several runs against updates or hours.

    python scripts/plot_curves.py luna=luna/log.json fastformer=fastformer/log.json --output curves.png
    python scripts/plot_curves.py luna=luna/log.json block=block/log.json --against hours --output hours.png

Hours, or minutes if they are at most two hours, are of updates only, without validations; those that a resumed run
repeats count once.

A log is what fairseq-train writes with --log-format json --log-file FILE, or the same lines as it prints them.
"""

import math
import sys
from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path

from fairseq_luna.commands.command_line import CommandError, Parser, command
from plots.training_log import HOURS, Series, read
from shared import picture


@command
def main(arguments: Sequence[str] | None = None) -> None:
    parser = Parser(__doc__)
    parser.add_argument("logs", nargs="+", metavar="[NAME=]LOG", help="a run's log, and its name in the legend")
    parser.add_argument("--subset", default="valid", help="of the validation; default: valid")
    parser.add_argument(
        "--against", choices=("updates", HOURS), default="updates", help="what the curves go along; default: updates"
    )
    parser.add_argument(
        "--smooth",
        type=float,
        default=0.0,
        metavar="SHARE",
        help="smooth the training loss: 0 as logged (the default), 0.9 much, less than 1",
    )
    picture.add_arguments(parser)
    args = parser.parse_args(arguments)
    picture.check_output(args.output, force=args.force)
    print("\n".join([*plot(args), f"{args.output}: {len(args.logs)} runs"]))


def plot(args: Namespace) -> list[str]:
    """Draw the picture; returns a line about each run.

    Raises:
        CommandError: an input cannot be read or drawn.
    """
    if not 0 <= args.smooth < 1:
        raise CommandError(f"--smooth {args.smooth}: must be at least 0 and less than 1")
    runs: dict[str, dict[str, Series]] = {}
    for given in args.logs:
        name, log = named(given)
        if name in runs:
            raise CommandError(f"{given}: {name} is the name of two runs; give NAME={log}")
        runs[name] = read(log)
        if args.against == HOURS and HOURS not in runs[name]:
            raise CommandError(f"{log}: no train_wall for --against hours; fairseq-train logs it every --log-interval")

    from plots import curves_picture

    if not curves_picture.drawn_panels(runs, args.subset):
        raise CommandError(f"--subset {args.subset}: none of the logs has a loss, a perplexity or BLEU")
    figure = curves_picture.draw(runs, subset=args.subset, smooth=args.smooth, hours=args.against == HOURS)
    picture.save(figure, args.output)
    return [summary(name, run, args.subset) for name, run in runs.items()]


def named(given: str) -> tuple[str, Path]:
    """The name of a run and its log, from ``NAME=LOG`` or from ``LOG``, which is named after its folder."""
    name, sign, log = given.partition("=")
    if sign and not Path(given).is_file():
        if not name or not log:
            raise CommandError(f"{given}: give LOG or NAME=LOG")
        return name, Path(log)
    path = Path(given)
    return path.absolute().parent.name, path


def summary(name: str, run: dict[str, Series], subset: str) -> str:
    """The updates of a run, and its best validations."""
    said = [f"{max(series.updates[-1] for series in run.values())} updates"]
    for value, best in ((f"{subset}_ppl", min), (f"{subset}_bleu", max)):
        series = run.get(value, Series([], []))
        points = [point for point in zip(series.values, series.updates, strict=True) if math.isfinite(point[0])]
        if points:
            found = best(points)
            said.append(f"best {value} {found[0]:g} at {found[1]}")
    return f"{name}: {', '.join(said)}"


if __name__ == "__main__":
    sys.exit(main())
