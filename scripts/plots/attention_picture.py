"""Drawing attention maps: a row of panels for each map, a panel for each head."""

from collections.abc import Sequence
from typing import Any

from fairseq_luna.commands.command_line import CommandError
from plots.attention_map import AttentionMap, Axis
from shared.picture import pyplot

CELL = 0.2  # inches
LONGEST = 9.0  # inches of a panel, at most
MOST_PANELS = 64
MOST_LABELS = 40


def chosen_heads(maps: Sequence[AttentionMap], heads: Sequence[int]) -> list[list[int]]:
    """The heads to draw of each map; all if ``heads`` is empty.

    Raises:
        CommandError: a map has no such head, or there are too many panels for one picture.
    """
    chosen = []
    for drawn in maps:
        count = len(drawn.weights)
        for head in heads:
            if not 0 <= head < count:
                raise CommandError(f"--heads {head}: {drawn.side} {drawn.kind} has {count}, counted from 0")
        chosen.append(list(heads) or list(range(count)))
    panels = sum(map(len, chosen))
    if panels > MOST_PANELS:
        raise CommandError(f"{panels} maps are too many for one picture: choose fewer --layers, --heads or --attention")
    return chosen


def draw(maps: Sequence[AttentionMap], heads: Sequence[int]) -> Any:
    """A figure of ``maps``; see :func:`chosen_heads`. The panels of a row share one scale of grey, from 0."""
    chosen = chosen_heads(maps, heads)
    widths = max(_inches(drawn.columns) for drawn in maps)
    heights = [_inches(drawn.rows) for drawn in maps]
    panels = max(map(len, chosen))
    labels = 1.1  # inches for words and titles
    figure, axes = pyplot().subplots(
        len(maps),
        panels,
        squeeze=False,
        figsize=(panels * (widths + labels) + 0.8, sum(heights) + 1.5 * labels * len(maps)),
        height_ratios=heights,
        layout="constrained",
    )
    for row, drawn, shown in zip(axes, maps, chosen, strict=True):
        largest = float(drawn.weights[shown].max())
        for axis, head in zip(row, shown, strict=False):
            image = axis.imshow(
                drawn.weights[head].float().numpy(),
                cmap="Greys",
                vmin=0,
                vmax=largest,
                aspect="auto",
                interpolation="nearest",
            )
            axis.set_title(f"{drawn.side} layer {drawn.layer}, {drawn.kind}, head {head}", fontsize=8)
            _label(axis.set_xticks, axis.set_xlabel, drawn.columns, rotation=90)
            _label(axis.set_yticks, axis.set_ylabel, drawn.rows)
        for axis in row[len(shown) :]:
            axis.set_visible(False)
        bar = figure.colorbar(image, ax=list(row), shrink=0.9, pad=0.01)
        bar.ax.tick_params(labelsize=6)
        bar.set_label(drawn.note, fontsize=6)
    return figure


def _inches(axis: Axis) -> float:
    return min(CELL * max(len(axis.labels), 6), LONGEST)


def _label(set_ticks: Any, set_name: Any, axis: Axis, **how: Any) -> None:
    # More words than MOST_LABELS could not be read. Without parse_math=False a dollar sign would start mathematics.
    labels = axis.labels if len(axis.labels) <= MOST_LABELS else []
    set_ticks(range(len(labels)), labels, fontsize=7, parse_math=False, **how)
    set_name(axis.name, fontsize=7)
