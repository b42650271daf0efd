"""Draw README's picture: the time of each model against the length, beside its quality in docs/results.md.

    python scripts/plot_quality_and_speed.py train.json generate.json --output docs/images/quality_and_speed.png

The files are what scripts/benchmark.py train and generate write with --json; docs/speed.md has the commands.
"""

import json
import re
import sys
from collections.abc import Sequence
from pathlib import Path

from fairseq_luna.command_line import CommandError, Parser, command
from shared import picture

RESULTS = Path(__file__).parents[1] / "docs" / "results.md"
# By the benchmark's name: the name in the picture, and the beginning of its row in RESULTS.
SYSTEMS = {
    "transformer": ("fairseq's transformer", "transformer, fairseq's"),
    "luna-packed-convolution": ("Luna, as in the paper", "Luna, packed source as in the paper"),
    "luna-convolution": ("Luna, softmax to the source", "Luna, softmax attention to the source, convolution"),
    "fastformer-convolution": ("Fastformer", "Fastformer, convolution"),
    "block-convolution": ("block attention", "block attention, convolution"),
}


@command
def main(arguments: Sequence[str] | None = None) -> None:
    parser = Parser(__doc__)
    parser.add_argument("train", type=Path, metavar="TRAIN", help="times of a training step")
    parser.add_argument("generate", type=Path, metavar="GENERATE", help="times of generation")
    picture.add_arguments(parser)
    args = parser.parse_args(arguments)
    picture.check_output(args.output, force=args.force)
    figure, axes = picture.pyplot().subplots(1, 3, figsize=(11, 3.8), width_ratios=(3, 3, 2), layout="constrained")
    for axis, file, what in zip(axes, (args.train, args.generate), ("a training step", "generation"), strict=False):
        rows = json.loads(file.read_text(encoding="utf-8"))["rows"]
        for system, (label, _) in SYSTEMS.items():
            points = sorted((row["length"], row["ratio"]) for row in rows if row["system"] == system)
            if not points:
                raise CommandError(f"{file}: has no times of {system}; give it with --systems")
            axis.plot(*zip(*points, strict=True), marker="o", color=picture.COLOURS[system], label=label)
        axis.set(xscale="log", ylim=(0, None), xlabel="words", title=f"time of {what}, transformer = 1")
        lengths = sorted({row["length"] for row in rows})
        axis.set_xticks(lengths, [f"{length:,}" for length in lengths])
        axis.minorticks_off()
        axis.grid(True, alpha=0.3)
    page = RESULTS.read_text(encoding="utf-8")
    for place, (system, (_, row)) in enumerate(SYSTEMS.items()):
        bleu, least, largest = quality(page, row)
        spread = [[bleu - least], [largest - bleu]]
        axes[2].errorbar(bleu, -place, xerr=spread, fmt="o", color=picture.COLOURS[system])
        axes[2].annotate(f"{bleu:.1f}", (bleu, -place), (0, 7), textcoords="offset points", ha="center")
    axes[2].set(xlim=(36.5, 41), ylim=(0.5 - len(SYSTEMS), 0.5), yticks=[], title="sacreBLEU, Multi30k")
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=len(SYSTEMS))
    picture.save(figure, args.output)


def quality(page: str, row: str) -> tuple[float, ...]:
    """BLEU on the test, mean, least and largest of the seeds, where there are several."""
    if several := re.search(rf"^\| {re.escape(row)} \| ([\d.]+) \(([\d.]+) to ([\d.]+)\)", page, re.M):
        return tuple(map(float, several.groups()))
    [bleu] = re.findall(rf"^\| {re.escape(row)} \|.*\| ([\d.]+) \| [\d.]+ \|$", page, re.M)
    return (float(bleu),) * 3


if __name__ == "__main__":
    sys.exit(main())
