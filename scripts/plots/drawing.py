"""Drawing attention maps: a row of panels for each map, a panel for each head."""

from collections.abc import Sequence
from typing import Any

from fairseq_luna.command_line import CommandError
from plots.maps import AttentionMap, Axis
from shared.picture import pyplot

CELL, LONGEST, LABELS = 0.2, 9.0, 1.1  # inches of a cell, of a panel at most, and for words and titles
MOST_PANELS, MOST_LABELS = 64, 40


def draw(maps: Sequence[AttentionMap], heads: Sequence[int]) -> Any:
    """A figure of ``maps``, of all heads if ``heads`` is empty. The panels of a row share one scale of grey, from 0.

    Raises:
        CommandError: a map has no such head, or there are too many panels for one picture.
    """
    for drawn in maps:
        for head in heads:
            if not 0 <= head < len(drawn.weights):
                raise CommandError(f"--heads {head}: {drawn.side} {drawn.kind} has {len(drawn.weights)}, from 0")
    chosen = [list(heads) or list(range(len(drawn.weights))) for drawn in maps]
    if sum(map(len, chosen)) > MOST_PANELS:
        raise CommandError("too many maps for one picture: choose fewer --layers, --heads or --attention")
    heights, panels = [_inches(drawn.rows) for drawn in maps], max(map(len, chosen))
    width = panels * (max(_inches(drawn.columns) for drawn in maps) + LABELS) + 0.8
    size = {"figsize": (width, sum(heights) + 1.5 * LABELS * len(maps)), "height_ratios": heights}
    figure, axes = pyplot().subplots(len(maps), panels, squeeze=False, layout="constrained", **size)
    for row, drawn, shown in zip(axes, maps, chosen, strict=True):
        scale = {"cmap": "Greys", "vmin": 0, "vmax": float(drawn.weights[shown].max())}
        for axis, head in zip(row, shown, strict=False):
            image = axis.imshow(drawn.weights[head].float().numpy(), aspect="auto", interpolation="nearest", **scale)
            axis.set_title(f"{drawn.side} layer {drawn.layer}, {drawn.kind}, head {head}", fontsize=8)
            _label(axis.set_xticks, axis.set_xlabel, drawn.columns, rotation=90)
            _label(axis.set_yticks, axis.set_ylabel, drawn.rows)
        for axis in row[len(shown) :]:
            axis.set_visible(False)
        figure.colorbar(image, ax=list(row), shrink=0.9, pad=0.01).set_label(drawn.note, fontsize=6)
    return figure


def _inches(axis: Axis) -> float:
    return min(CELL * max(len(axis.labels), 6), LONGEST)


def _label(set_ticks: Any, set_name: Any, axis: Axis, **how: Any) -> None:
    labels = axis.labels if len(axis.labels) <= MOST_LABELS else []  # more could not be read
    set_ticks(range(len(labels)), labels, fontsize=7, **how)
    set_name(axis.name, fontsize=7)
