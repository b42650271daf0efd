"""The flags that all subcommands have, and what is refused before anything is measured."""

import argparse
import importlib.util
from argparse import ArgumentParser, ArgumentTypeError, Namespace
from collections.abc import Iterable
from pathlib import Path
from typing import NoReturn

import torch

from .command import CommandError

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}


class OneLineParser(ArgumentParser):
    """An argument parser whose refusals are one line, without the usage before it."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"benchmark.py: {message}\n")


def positive(text: str) -> int:
    """The type of a flag that counts something."""
    if not text.isdecimal() or int(text) < 1:
        raise ArgumentTypeError(f"{text!r} must be a whole number of 1 or more")
    return int(text)


def not_negative(text: str) -> int:
    """The type of a flag that may also be nothing."""
    return 0 if text == "0" else positive(text)


def add_common(
    parser: ArgumentParser,
    *,
    systems: Iterable[str],
    variants: Iterable[str] = (),
    reference: str,
    rounds: int,
    png: bool = True,
) -> None:
    """Which systems, how often, on what, and where to; ``variants`` are measured only where they are named."""
    usual = list(systems)
    names = [*usual, *variants]
    named = "; also ".join(", ".join(part) for part in (usual, variants) if part)
    parser.add_argument("--systems", nargs="+", choices=names, default=usual, metavar="NAME", help=named)
    parser.add_argument(
        "--reference",
        choices=names,
        default=reference,
        metavar="NAME",
        help=f"whose time the others' are divided by, within each round (default: {reference})",
    )
    parser.add_argument("--rounds", type=positive, default=rounds, help=f"each system once a round (default: {rounds})")
    parser.add_argument("--warm-up", type=not_negative, default=1, help="rounds before those (default: 1)")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--dtype", choices=tuple(DTYPES), default="float32")
    parser.add_argument("--threads", type=positive, default=1, help="of the CPU (default: 1)")
    parser.add_argument("--quick", action="store_true", help="fewer rounds or shorter lengths, unless they are given")
    parser.add_argument("--no-peak", action="store_true", help="leave out peak memory: a step more, in its own process")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write everything to this file")
    parser.set_defaults(png=None)
    if png:
        parser.add_argument("--png", type=Path, metavar="FILE", help="also draw time and memory against length")


def check_common(args: Namespace) -> None:
    """Refuse what cannot be measured or could not be written: CommandError."""
    if len(set(args.systems)) < len(args.systems):
        raise CommandError(f"--systems {' '.join(args.systems)}: name each once")
    if args.reference not in args.systems:
        raise CommandError(f"--reference {args.reference}: not among --systems {' '.join(args.systems)}; add it or another")
    if args.device == "cuda" and not torch.cuda.is_available():
        raise CommandError(f"--device cuda: torch {torch.__version__} sees no CUDA device here; use --device cpu")
    for flag, file in (("--json", args.json), ("--png", args.png)):
        if file is not None and not file.absolute().parent.is_dir():
            raise CommandError(f"{flag} {file}: there is no folder {file.parent}; make it first")
        if file is not None and file.is_dir():
            raise CommandError(f"{flag} {file}: is a folder; name a file in it")
    if args.png is not None and args.png.suffix != ".png":
        raise CommandError(f"{'--png'} {args.png}: the name must end in .png")
    if args.png is not None and importlib.util.find_spec("matplotlib") is None:
        raise CommandError("--png: needs matplotlib: pip install matplotlib")


def settings(args: Namespace) -> dict[str, object]:
    """Every flag's value, as JSON can have it."""
    values = {name: value for name, value in vars(args).items() if not callable(value)}
    return {name: str(value) if isinstance(value, Path) else value for name, value in values.items()}


def raw_help(parser: ArgumentParser, text: str) -> None:
    """Show ``text`` as it stands above the flags."""
    parser.description = text
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
