"""Drawing attention maps: a row of panels for each map, a panel for each head."""

from collections.abc import Sequence
from typing import Any

from fairseq_luna.command_line import CommandError
from fairseq_luna.subwords import SPACE
from plots.maps import AttentionMap, Axis
from shared.picture import pyplot

CELL, LONGEST, LABELS = 0.28, 9.0, 1.6  # inches of a cell, of a panel at most, and for words and titles
MOST_PANELS, MOST_LABELS = 64, 40
FONT = 12
NAMES = {"</s>": "(end)", "<unk>": "(unknown)"}
SIDE_NAMES = {"encoder": "encoder self-attention", "cross": "cross-attention", "decoder": "decoder self-attention"}


def draw(maps: Sequence[AttentionMap], heads: Sequence[int]) -> Any:
    """A figure of ``maps``, of all heads if ``heads`` is empty: a row for each map, or one row if each has one head.

    White is 0; the panels of one map share the weight that is black, which their titles name.

    Raises:
        CommandError: a map has no such head, or there are too many panels for one picture.
    """
    for drawn in maps:
        for head in heads:
            if not 0 <= head < len(drawn.weights):
                raise CommandError(f"--heads {head}: {drawn.side} {drawn.kind} has {len(drawn.weights)}, from 0")
    grid = [[(drawn, head) for head in (list(heads) or range(len(drawn.weights)))] for drawn in maps]
    if sum(map(len, grid)) > MOST_PANELS:
        raise CommandError("too many maps for one picture: choose fewer --layers, --heads or --attention")
    black = {id(drawn): float(drawn.weights[[head for _, head in row]].max()) for row in grid for drawn, _ in row[:1]}
    if all(len(row) == 1 for row in grid):
        grid = [[panel for row in grid for panel in row]]
    widths = [
        max(_inches(row[place][0].columns) for row in grid if place < len(row)) for place in range(_longest(grid))
    ]
    heights = [max(_inches(drawn.rows) for drawn, _ in row) for row in grid]
    size = (sum(widths) + LABELS * len(widths), sum(heights) + LABELS * len(heights))
    ratios = {"width_ratios": widths, "height_ratios": heights}
    figure, axes = pyplot().subplots(
        len(grid), len(widths), squeeze=False, figsize=size, layout="constrained", **ratios
    )
    for line, row in zip(axes, grid, strict=True):
        for axis, (drawn, head) in zip(line, row, strict=False):
            _draw_panel(axis, drawn, head, black[id(drawn)])
        for axis in line[len(row) :]:
            axis.set_visible(False)
    return figure


def _draw_panel(axis: Any, drawn: AttentionMap, head: int, black: float) -> None:
    weights = drawn.weights[head].float().numpy()
    axis.imshow(weights, aspect="auto", interpolation="nearest", cmap="Greys", vmin=0, vmax=black)
    place = f"{SIDE_NAMES[drawn.side]}, layer {drawn.layer}"
    axis.set_title(f"{place}\n{drawn.kind}, head {head}; black: {black:.2g}", fontsize=FONT)
    _label(axis.set_xticks, axis.set_xlabel, drawn.columns, rotation=90)
    _label(axis.set_yticks, axis.set_ylabel, drawn.rows)


def _longest(grid: Sequence[Sequence[Any]]) -> int:
    return max(map(len, grid))


def _inches(axis: Axis) -> float:
    return min(CELL * max(len(axis.labels), 6), LONGEST)


def _label(set_ticks: Any, set_name: Any, axis: Axis, **how: Any) -> None:
    labels = _as_read(axis.labels) if len(axis.labels) <= MOST_LABELS else []  # more could not be read
    set_ticks(range(len(labels)), labels, fontsize=FONT, **how)
    set_name(axis.name, fontsize=FONT)


def _as_read(pieces: Sequence[str]) -> list[str]:
    """SentencePiece's pieces without the mark before a word; a hyphen stands before pieces that continue a word."""
    if not any(piece.startswith(SPACE) for piece in pieces):
        return [NAMES.get(piece, piece) for piece in pieces]
    return [NAMES.get(piece) or _without_mark(piece) for piece in pieces]


def _without_mark(piece: str) -> str:
    if piece.startswith(SPACE):
        return piece.removeprefix(SPACE) or "(space)"
    return f"-{piece}" if piece[0].isalnum() else piece
