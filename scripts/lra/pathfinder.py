"""Pathfinder: pictures of dashed paths and two dots; the label says whether one path joins the dots.

The task of arXiv 2011.04006 on pictures of a generator of our own: accuracies are not those of the published pictures.
"""

import math
import random
from collections.abc import Iterator, Sequence
from itertools import count, pairwise, permutations, product
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fairseq_luna.commands.preparing.parallel import in_order

Point = tuple[float, float]
Path = list[Point]
Dots = tuple[Point, Point]

SIZE = 32
# In pixels. A dash is LIT steps long, the gap after it DARK steps; a step is a pixel. Paths begin and end with a dash,
# so that their ends look alike.
LIT, DARK = 2, 2
MARGIN = 2.0
APART = 4.0
LONG, SHORT = 4 * (LIT + DARK) + LIT, 2 * (LIT + DARK) + LIT
LONG_PATHS, SHORT_PATHS = 3, 1
TURN = 0.3
DOT_RADIUS, LINE_RADIUS = 1.6, 0.5
DOT, LINE = 255, 191
# How much the places of the dots of both labels may differ.
SIMILAR = 1.5
_AT_ONCE = 200
_TRIES = 200
# Cells of a pixel's side, where paths that are too near are looked up.
_FINE = 2
_PIXELS = np.arange(SIZE) + 0.5
_CELLS = (np.arange(SIZE * _FINE) + 0.5) / _FINE


class Layout(NamedTuple):
    """The paths, and for each label the middles of its dots."""

    paths: list[Path]
    dots: tuple[Dots, Dots]


def pictures(seed: int, workers: int) -> Iterator[tuple[str, bytes]]:
    """Endless labels, 0 and 1 in turn, and pictures of SIZE x SIZE grey values; the same for the same seed."""
    for chunk in in_order(_Chunk(seed), count(), workers=workers):
        yield from chunk


class _Chunk(NamedTuple):
    """Makes chunk ``number``, in any process."""

    seed: int

    def __call__(self, number: int) -> list[tuple[str, bytes]]:
        draw = random.Random(f"pathfinder {self.seed} {number}")
        return [(str(label), drawn(layout(draw), label).tobytes()) for label in (0, 1) * (_AT_ONCE // 2)]


def layout(draw: random.Random) -> Layout:
    """Paths that keep apart. The label is chosen after them, so that only the dots depend on it."""
    while True:
        room = np.full((SIZE * _FINE, SIZE * _FINE), np.inf)
        paths = _paths(draw, LONG_PATHS, LONG, DOT_RADIUS, room)
        dots = _dots(paths) if paths else None
        others = _paths(draw, SHORT_PATHS, SHORT, 0, room) if dots else None
        if paths and dots and others:
            return Layout([*paths, *others], dots)


def _dots(paths: list[Path]) -> tuple[Dots, Dots] | None:
    """For each label a first and a last point, of two paths and of one, in similar places; None if none are similar."""
    apart = [(one[0], other[-1]) for one, other in permutations(paths, 2)]
    joined = [(path[0], path[-1]) for path in paths]
    pair = min(product(apart, joined), key=_difference)
    return pair if _difference(pair) < SIMILAR else None


def _difference(pair: tuple[Dots, Dots]) -> float:
    """How much two pairs of dots differ in their distance, and in that of their middle from the picture's."""
    (length, place), (other_length, other_place) = (
        (math.dist(a, b), math.dist(((a[0] + b[0]) / 2, (a[1] + b[1]) / 2), (SIZE / 2, SIZE / 2))) for a, b in pair
    )
    return abs(length - other_length) + abs(place - other_place)


def _paths(draw: random.Random, number: int, length: int, dot: float, room: NDArray[np.float64]) -> list[Path] | None:
    """Paths of the same kind, which are added to ``room``, or None if they do not fit; see :func:`_walk`."""
    paths: list[Path] = []
    for _ in range(number):
        cells = room.tolist()
        path = next(filter(None, (_walk(draw, length, dot, cells) for _ in range(_TRIES))), None)
        if path is None:
            return None
        paths.append(path)
        np.minimum(room, _distance(_CELLS, path), out=room)
        np.minimum(room, _distance(_CELLS, [path[0], path[-1]]) - dot, out=room)
    return paths


def _walk(draw: random.Random, length: int, dot: float, room: list[list[float]]) -> Path | None:
    """A path of so many steps that bends slowly, or None if it came near the border, another path or itself.

    Args:
        dot: radius of the dots that may stand at its ends.
        room: the distance of each cell to the paths before it.
    """
    x, y = (draw.uniform(MARGIN, SIZE - MARGIN) for _ in range(2))
    direction = draw.uniform(0, 2 * math.pi)
    path: Path = []
    while MARGIN <= x <= SIZE - MARGIN and MARGIN <= y <= SIZE - MARGIN:
        free = room[int(y * _FINE)][int(x * _FINE)] - (dot if len(path) in (0, length) else 0)
        # A path that bends slowly is as far from its point of 8 steps before.
        if free < APART or any(math.dist((x, y), earlier) < APART for earlier in path[:-8]):
            return None
        path.append((x, y))
        if len(path) > length:
            return path
        direction += draw.gauss(0, TURN)
        x, y = x + math.cos(direction), y + math.sin(direction)
    return None


def drawn(plan: Layout, label: int) -> NDArray[np.uint8]:
    """The picture ``(SIZE, SIZE)``, uint8, with the dots of ``label``."""
    lines = np.full((SIZE, SIZE), np.inf)
    for path in plan.paths:
        for start in range(0, len(path) - 1, LIT + DARK):
            dash = path[start : start + LIT + 1]
            lines = np.minimum(lines, _distance(_PIXELS, _filled(dash)))
    dots = _distance(_PIXELS, plan.dots[label])
    grey = np.maximum(LINE * _covered(lines, LINE_RADIUS), DOT * _covered(dots, DOT_RADIUS))
    return np.rint(grey).astype(np.uint8)


def _covered(distance: NDArray[np.float64], radius: float) -> NDArray[np.float64]:
    """How much of a pixel at this distance from a shape's middle is covered, about."""
    return np.clip(radius + 0.5 - distance, 0, 1)


def _filled(dash: Sequence[Point]) -> Path:
    """The points of ``dash`` and some between them."""
    between = [((ax + bx) / 2, (ay + by) / 2) for (ax, ay), (bx, by) in pairwise(dash)]
    return [*dash, *between]


def _distance(places: NDArray[np.float64], points: Sequence[Point]) -> NDArray[np.float64]:
    """From each cell of a square grid, whose rows and columns are at ``places``, to the nearest of ``points``."""
    across, down = (((places[:, None] - along) ** 2) for along in np.asarray(points).T)
    return np.sqrt((down[:, None] + across).min(-1))
