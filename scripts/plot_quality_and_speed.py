"""Draw README's picture from its tables: each model's time relative to fairseq's transformer, and its BLEU.

    python scripts/plot_quality_and_speed.py --output docs/images/quality_and_speed.png --force

Times are read from the table of README's section "Speed", BLEU and the range of its seeds from docs/results.md.
"""

import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fairseq_luna.command_line import CommandError, Parser, command
from shared import picture

ROOT = Path(__file__).parents[1]
# By the benchmark's name: the row of README's table, the name in the picture, and the row of docs/results.md.
SYSTEMS = {
    "transformer": ("fairseq's transformer", "fairseq's transformer", "transformer, fairseq's"),
    "softmax-convolution": (
        *("`--arch mixed_base`, fused softmax", "mixed_base, fused softmax"),
        "softmax attention everywhere, convolution",
    ),
    "luna-packed-convolution": (
        *("Luna, untied, packed cross-attention", "Luna, packed cross-attention"),
        "Luna, packed cross-attention, convolution",
    ),
    "luna-convolution": (
        *("Luna, untied, softmax cross-attention", "Luna, softmax cross-attention"),
        "Luna, softmax cross-attention, convolution",
    ),
    "fastformer-convolution": ("Fastformer", "Fastformer", "Fastformer, convolution"),
    "block-convolution": ("block attention", "block attention", "block attention, convolution"),
}
TITLES = (
    *("training step\n25 tokens", "training step\n512 tokens", "training step\n2,048 tokens"),
    *("generation\n25 tokens", "generation\n512 tokens"),
)
BOOTSTRAP = 1.6  # BLEU; half of the 95 % interval in docs/results.md


@command
def main(arguments: Sequence[str] | None = None) -> None:
    parser = Parser(__doc__)
    picture.add_arguments(parser)
    args = parser.parse_args(arguments)
    picture.check_output(args.output, force=args.force)
    readme = (ROOT / "README.md").read_text(encoding="utf-8").partition("\n## Speed\n")[2]
    results = (ROOT / "docs" / "results.md").read_text(encoding="utf-8")
    pyplot = picture.pyplot()
    pyplot.rcParams["font.size"] = 12
    figure, axes = pyplot.subplots(
        *(1, len(TITLES) + 1), figsize=(15, 4.2), width_ratios=(*[1] * len(TITLES), 2), layout="constrained"
    )
    for axis, title, times in zip(axes, TITLES, zip(*relative_times(readme), strict=True), strict=False):
        draw_times(axis, times)
        axis.set_title(title, fontsize=12)
    draw_quality(axes[-1], [quality(results, row) for _, _, row in SYSTEMS.values()])
    axes[0].set_yticks(range(len(SYSTEMS)), [label for _, label, _ in SYSTEMS.values()])
    for axis in axes[1:]:
        axis.set_yticks([])
    for axis in axes:
        axis.set_ylim(len(SYSTEMS) - 0.1, -0.5)
        axis.tick_params(axis="y", length=0)
        for side in ("top", "right", "left"):
            axis.spines[side].set_visible(False)
    figure.supxlabel("time relative to fairseq's transformer (shorter is faster)", x=0.45, fontsize=12)
    picture.save(figure, args.output)


def relative_times(readme: str) -> list[tuple[float | None, ...]]:
    """The times of each system relative to fairseq's transformer; None where the table has no number.

    Raises:
        CommandError: a system has no row in the table.
    """
    rows = []
    for name, _, _ in SYSTEMS.values():
        found = re.search(rf"^\| {re.escape(name)} \| (.*) \|$", readme, re.M)
        if not found:
            raise CommandError(f"README.md: the table of the section Speed has no row {name!r}")
        numbers = [re.match(r"[\d.]+", cell.strip()) for cell in found[1].split("|")]
        rows.append(tuple(number and float(number[0]) for number in numbers))
    return rows


def draw_times(axis: Any, times: Sequence[float | None]) -> None:
    """A horizontal bar for each system, with its number at the end."""
    for place, (system, time) in enumerate(zip(SYSTEMS, times, strict=True)):
        if time is None:
            axis.text(0.03, place, "not measured", va="center", color="#555555")
        else:
            axis.barh(place, time, height=0.7, color=picture.COLOURS[system])
            axis.text(time + 0.03, place, "1" if time == 1 else f"{time:.2f}", va="center")
    axis.set_xlim(0, 1.5)
    axis.set_xticks([0, 0.5, 1], ["0", "0.5", "1"])


def draw_quality(axis: Any, scores: Sequence[tuple[float, float, float]]) -> None:
    """BLEU with the range of its seeds, over the bootstrap interval of the transformer's score."""
    first = scores[0][0]
    axis.axvspan(first - BOOTSTRAP, first + BOOTSTRAP, color="#E4E4E4")
    interval = f"grey: {first:.1f} ± {BOOTSTRAP}, 95 % bootstrap"
    axis.text(first, len(SYSTEMS) - 0.4, interval, ha="center", va="center", fontsize=11, color="#555555")
    for place, (system, (bleu, least, largest)) in enumerate(zip(SYSTEMS, scores, strict=True)):
        colour = picture.COLOURS[system]
        axis.errorbar(bleu, place, xerr=[[bleu - least], [largest - bleu]], fmt="o", color=colour, capsize=4)
        seeds = "" if largest > least else " (one seed)"
        axis.text(largest + 0.12, place, f"{bleu:.1f}{seeds}", va="center")
    axis.set_xlim(36.7, 41.4)
    axis.set_title("sacreBLEU on Multi30k\nmean and range of three seeds", fontsize=12)


def quality(page: str, row: str) -> tuple[float, float, float]:
    """BLEU on the test: the mean, the least and the largest of the seeds, or one seed's score three times."""
    if several := re.search(rf"^\| {re.escape(row)} \| ([\d.]+) \(([\d.]+) to ([\d.]+)\)", page, re.M):
        mean, least, largest = map(float, several.groups())
        return mean, least, largest
    [bleu] = re.findall(rf"^\| {re.escape(row)} \|.*\| ([\d.]+) \| [\d.]+ \|$", page, re.M)
    return (float(bleu),) * 3


if __name__ == "__main__":
    sys.exit(main())
