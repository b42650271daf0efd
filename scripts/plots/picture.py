"""Writing a picture: under another name first, and never over an older one unasked."""

import importlib.util
import logging
from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from plots.problem import CannotPlot


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("--output", type=Path, required=True, metavar="PNG", help="the picture to write")
    parser.add_argument("--force", action="store_true", help="replace --output if it exists")


def check_output(output: Path, *, force: bool) -> None:
    """Raises CannotPlot where ``output`` cannot be written, or its writing would lose something."""
    if output.suffix != ".png":
        raise CannotPlot(f"--output {output}: the name must end in .png")
    if not output.absolute().parent.is_dir():
        raise CannotPlot(f"--output {output}: there is no folder {output.parent}")
    if output.is_dir():
        raise CannotPlot(f"--output {output}: is a folder; name a file in it")
    if output.exists() and not force:
        raise CannotPlot(f"--output {output}: it exists; give another name, or --force")
    if importlib.util.find_spec("matplotlib") is None:
        raise CannotPlot("--output: drawing needs matplotlib: pip install matplotlib")


def pyplot() -> Any:
    """matplotlib's pyplot, drawing into files and saying nothing of its fonts."""
    logging.getLogger("matplotlib").setLevel(logging.WARNING)  # importing fairseq lets every logger speak
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    return pyplot


def save(figure: Any, output: Path) -> None:
    """Write ``figure`` so that ``output`` is never half a picture, and let go of it.

    Raises:
        CannotPlot: it could not be written; nothing is left behind.
    """
    unfinished = output.with_name(output.name + ".unfinished")
    try:
        figure.savefig(unfinished, dpi=100, format="png")
        unfinished.replace(output)
    except OSError as error:
        raise CannotPlot(f"--output {output}: {error.strerror or error}") from error
    finally:
        unfinished.unlink(missing_ok=True)
        pyplot().close(figure)
