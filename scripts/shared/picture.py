"""Drawing with matplotlib into a PNG file that is never incomplete and never overwrites another unasked."""

import importlib.util
import logging
from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from fairseq_luna.command_line import CommandError
from fairseq_luna.files import atomic_write


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("--output", type=Path, required=True, metavar="PNG", help="the picture")
    parser.add_argument("--force", action="store_true", help="replace --output if it exists")


def check_output(output: Path, *, force: bool) -> None:
    """Raises CommandError if ``output`` cannot be written or would overwrite something."""
    if output.suffix != ".png":
        raise CommandError(f"--output {output}: the name must end in .png")
    if not output.absolute().parent.is_dir() or output.is_dir():
        raise CommandError(f"--output {output}: is a folder, or is in none; make the folder first")
    if output.exists() and not force:
        raise CommandError(f"--output {output}: it exists; give another name, or --force")
    if importlib.util.find_spec("matplotlib") is None:
        raise CommandError("--output: needs matplotlib: pip install matplotlib")


def pyplot() -> Any:
    """matplotlib's pyplot, which draws into files and does not log."""
    logging.getLogger("matplotlib").setLevel(logging.WARNING)  # importing fairseq sets the root logger to DEBUG
    import matplotlib

    matplotlib.use("Agg")
    matplotlib.rcParams["text.parse_math"] = False  # a dollar sign in a word would start mathematics
    from matplotlib import pyplot

    return pyplot


# One colour a system in every picture; they can be told apart by readers who see fewer colours.
COLOURS = {
    name: colour
    for colour, names in {
        "#000000": "transformer softmax full",
        "#D55E00": "luna luna-packed-convolution",
        "#E69F00": "luna-convolution",
        "#0072B2": "fastformer fastformer-convolution",
        "#009E73": "block block-convolution",
        "#999999": "softmax-convolution",
    }.items()
    for name in names.split()
}


def save(figure: Any, output: Path) -> None:
    """Write ``figure`` and close it."""
    try:
        with atomic_write(output) as unfinished:
            figure.savefig(unfinished, dpi=100, format="png")
    finally:
        pyplot().close(figure)
