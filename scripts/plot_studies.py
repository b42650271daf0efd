"""Draw a picture of a study from the study's table.

    python scripts/plot_studies.py conversion --output research/images/conversion_bleu.png --force
    python scripts/plot_studies.py attention --output research/images/benchmark_attention.png --force

conversion: validation BLEU after 100, 300 and 600 updates, of research/2026-11-23-conversion.md.
attention: time and memory of attentions alone, of the section "Attention alone" of research/2026-11-23-costs.md.
"""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fairseq_luna.command_line import CommandError, Parser, command
from shared import picture

RESEARCH = Path(__file__).parents[1] / "research"
# By the row of the table: the name in the picture, and the system whose colour it has.
CONVERTED = {
    "the teacher itself, without convolution": ("transformer, not converted", "transformer"),
    "`linear`": ("linear", ""),
    "`local`": ("local", ""),
    "`performer`": ("performer", ""),
    "Luna, untied, softmax cross-attention": ("Luna, softmax cross-attention", "luna-convolution"),
    "block attention, both sides": ("block attention", "block"),
    "Fastformer, both sides": ("Fastformer", "fastformer"),
    "`linear` from scratch, learning rate 0.005 after 200 updates": ("linear, from scratch", ""),
}
REFERENCE = "Luna, chunks, ms"
# By the column of the table.
ALONE = {
    "torch's softmax attention": ("torch's softmax attention", "softmax"),
    "block": ("block attention", "block"),
    "Fastformer": ("Fastformer", "fastformer"),
    REFERENCE: ("Luna, chunks of steps", "luna"),
    "step by step": ("Luna, step by step", ""),
    "cumulative sum": ("Luna, cumulative sum", ""),
}
# By the row of the table.
ALONE_PANELS = {
    "128": "128 tokens\nmilliseconds",
    "2,048": "2,048 tokens\nmilliseconds",
    "2,048, peak MiB": "2,048 tokens\npeak memory, MiB",
}
OTHER = "#777777"  # of systems without a colour in other pictures


@command
def main(arguments: Sequence[str] | None = None) -> None:
    parser = Parser(__doc__)
    parser.add_argument("picture", choices=("conversion", "attention"), help="which picture")
    picture.add_arguments(parser)
    args = parser.parse_args(arguments)
    picture.check_output(args.output, force=args.force)
    draw = {"conversion": draw_conversion, "attention": draw_attention}[args.picture]
    picture.save(draw(), args.output)


def table(page: str, first_cell: str) -> dict[str, list[str]]:
    """The rows of the first table of ``page`` whose header begins with ``first_cell``: first cell to other cells.

    Raises:
        CommandError: the page has no such table.
    """
    lines = iter((RESEARCH / page).read_text(encoding="utf-8").splitlines())
    rows: dict[str, list[str]] = {}
    for line in lines:
        if rows and not line.startswith("|"):
            break
        if rows or line.startswith(f"| {first_cell}"):
            name, *cells = (cell.strip() for cell in line.strip("|").split("|"))
            rows[name] = cells
    if not rows:
        raise CommandError(f"research/{page}: no table begins with {first_cell!r}")
    return rows


def row_of(rows: dict[str, list[str]], name: str) -> list[str]:
    if name not in rows:
        raise CommandError(f"the study's table has no row {name!r}: change the names in {Path(__file__).name}")
    return rows[name]


def draw_conversion() -> Any:
    """A panel for each number of updates, with a bar for each model."""
    rows = table("2026-11-23-conversion.md", "after updates")
    figure, axes = panels(3, [label for label, _ in CONVERTED.values()])
    for number, (axis, updates) in enumerate(zip(axes, rows["after updates"], strict=True)):
        scores = [float(row_of(rows, name)[number].split(" / ")[0]) for name in CONVERTED]
        for place, (score, (_, system)) in enumerate(zip(scores, CONVERTED.values(), strict=True)):
            axis.barh(place, score, height=0.7, color=picture.COLOURS.get(system, OTHER))
            axis.text(score + 0.7, place, f"{score:.1f}", va="center")
        axis.set_xlim(0, 47)
        axis.set_title(f"after {updates} updates")
    figure.supxlabel("greedy BLEU, Multi30k's validation set", fontsize=12)
    return figure


def draw_attention() -> Any:
    """Time at the shortest and at the longest length, and memory; a dot for each attention, on logarithmic axes."""
    figure, axes = panels(3, [label for label, _ in ALONE.values()])
    for axis, (row, title) in zip(axes, ALONE_PANELS.items(), strict=True):
        values = alone(row)
        for place, (value, (_, system)) in enumerate(zip(values, ALONE.values(), strict=True)):
            axis.plot(value, place, "o", markersize=10, color=picture.COLOURS.get(system, OTHER))
            number = f"{value:,.0f}" if value >= 10 else f"{value:.1f}"
            axis.annotate(number, (value, place), (10, 0), textcoords="offset points", va="center")
        axis.set_xscale("log")
        axis.set_xlim(min(values) / 1.5, max(values) * 4)
        axis.set_xticks([], [])
        axis.set_xticks([], [], minor=True)
        axis.set_title(title)
    figure.supxlabel("farther left is less; logarithmic", fontsize=12)
    return figure


def alone(row: str) -> list[float]:
    """Milliseconds or MiB of each attention of ALONE, from a row of the table."""
    rows = table("2026-11-23-costs.md", "tokens |")
    columns = rows["tokens"]
    if missing := [name for name in ALONE if name not in columns]:
        raise CommandError(f"the study's table has no column {missing[0]!r}: change the names in {Path(__file__).name}")
    numbers = [float(cell.replace(",", "")) for cell in row_of(rows, row)]
    reference = columns.index(REFERENCE)
    if not row.endswith("MiB"):  # the other columns are relative to the reference's milliseconds
        numbers = [
            number if place == reference else number * numbers[reference] for place, number in enumerate(numbers)
        ]
    return [numbers[columns.index(column)] for column in ALONE]


def panels(count: int, labels: Sequence[str]) -> tuple[Any, Any]:
    """A figure of ``count`` panels side by side, whose rows have ``labels`` at the left."""
    pyplot = picture.pyplot()
    pyplot.rcParams.update({"font.size": 12, "axes.titlesize": 12})
    figure, axes = pyplot.subplots(1, count, figsize=(10.5, 0.4 * len(labels) + 1.2), layout="constrained")
    for axis in axes:
        axis.set_yticks([])
        axis.set_ylim(len(labels) - 0.4, -0.6)
        axis.tick_params(axis="y", length=0)
        for side in ("top", "right", "left"):
            axis.spines[side].set_visible(False)
    axes[0].set_yticks(range(len(labels)), labels)
    return figure, axes


if __name__ == "__main__":
    sys.exit(main())
