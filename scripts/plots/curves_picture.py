"""Drawing the curves of several runs: a panel for each value, a colour for each run."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from plots.training_log import HOURS, Series, hours_at, smoothed
from shared.picture import COLOURS, pyplot

Run = Mapping[str, Series]


class Panel(NamedTuple):
    name: str  # in the log
    label: str
    logarithmic: bool = False
    validated: bool = True  # logged at each validation; else during training, and smoothed


def panels(subset: str) -> tuple[Panel, ...]:
    """All panels, with the validation of ``subset``."""
    return (
        Panel("loss", "training loss (base 2)", validated=False),
        Panel(f"{subset}_loss", f"{subset} loss (base 2)"),
        Panel(f"{subset}_ppl", f"{subset} perplexity", logarithmic=True),
        Panel(f"{subset}_bleu", f"{subset} BLEU, as logged"),
    )


def drawn_panels(runs: Mapping[str, Run], subset: str) -> list[Panel]:
    """The panels for which at least one run has values."""
    return [panel for panel in panels(subset) if any(panel.name in run for run in runs.values())]


def draw(runs: Mapping[str, Run], *, subset: str, smooth: float, hours: bool = False) -> Any:
    """A figure of :func:`drawn_panels`.

    Args:
        runs: by their names in the legend.
        subset: the validation's.
        smooth: see :func:`plots.training_log.smoothed`; for the training loss only.
        hours: draw against the hours of training, not against updates.
    """
    from matplotlib.ticker import LogLocator

    shown = drawn_panels(runs, subset)
    columns = min(len(shown), 2)
    rows = -(-len(shown) // columns)
    figure, axes = pyplot().subplots(
        rows, columns, squeeze=False, figsize=(5 * columns, 3.5 * rows), layout="constrained"
    )
    # Short trainings in minutes.
    longest = max(run[HOURS].values[-1] for run in runs.values()) if hours else 0
    unit, scale = ("hours", 1) if longest > 2 else ("minutes", 60)
    for axis, panel in zip(axes.flat, shown, strict=False):
        for colour, (name, run) in enumerate(runs.items()):
            series = run.get(panel.name, Series([], []))
            if not panel.validated:
                series = smoothed(series, smooth)
            marker = "." if len(series.updates) < 40 else None
            reached = [scale * at for at in hours_at(run, series.updates)] if hours else series.updates
            drawn = COLOURS.get(name, f"C{colour}")
            axis.plot(reached, series.values, color=drawn, marker=marker, linewidth=1.2, label=name)
        axis.set(xlabel=f"{unit} of training" if hours else "updates", ylabel=panel.label)
        if panel.logarithmic:
            axis.set_yscale("log")
            axis.yaxis.set_major_locator(LogLocator(subs=(1, 2, 3, 5, 7)))
            axis.yaxis.set_major_formatter("{x:g}")
            axis.minorticks_off()
        axis.grid(True, alpha=0.3)
    for axis in axes.flat[len(shown) :]:
        axis.set_visible(False)
    handles, labels = axes.flat[0].get_legend_handles_labels()
    legend = figure.legend(handles, labels, loc="outside upper center", ncols=min(len(labels), 4), fontsize=9)
    for text in legend.get_texts():
        text.set_parse_math(False)
    return figure
