"""The flags of all subcommands, and what is refused before anything is measured."""

from argparse import ArgumentParser, Namespace
from collections.abc import Iterable
from pathlib import Path

import torch

from fairseq_luna.commands.command_line import CommandError, positive
from shared.picture import check_file, check_output

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}


def not_negative(text: str) -> int:
    """The type of a flag that may be 0."""
    return 0 if text == "0" else positive(text)


def add_common(
    parser: ArgumentParser,
    *,
    systems: Iterable[str],
    variants: Iterable[str] = (),
    reference: str,
    rounds: int,
    png: bool = True,
    device: bool = True,
    timed: bool = True,
) -> None:
    """Add the common flags.

    Args:
        variants: systems that are measured only if they are named.
        png: whether there is a --png.
        device: whether there are flags for the device, the dtype, threads and memory.
        timed: whether there are rounds, and memory is measured.
    """
    usual = list(systems)
    names = [*usual, *variants]
    named = "; also ".join(", ".join(part) for part in (usual, variants) if part)
    add = parser.add_argument
    add("--systems", nargs="+", choices=names, default=usual, metavar="NAME", help=named)
    add(
        "--reference",
        choices=names,
        default=reference,
        metavar="NAME",
        help=f"the others' times are divided by its time within each round (default: {reference})",
    )
    if timed:
        add("--rounds", type=positive, default=rounds, help=f"each system once a round (default: {rounds})")
        add("--warm-up", type=not_negative, default=1, help="unmeasured rounds before those (default: 1)")
        add("--quick", action="store_true", help="fewer rounds or shorter lengths, unless they are given")
    add("--json", type=Path, metavar="FILE", help="also write everything to this file")
    parser.set_defaults(png=None, device="cpu", dtype="float32", threads=1, no_peak=True, quick=False)
    if device:
        add("--device", choices=("cpu", "cuda"), default="cpu")
        add("--dtype", choices=tuple(DTYPES), default="float32")
        add("--threads", type=positive, default=1, help="of the CPU (default: 1)")
    if device and timed:
        add("--no-peak", action="store_true", default=False, help="do not measure peak memory")
    if png:
        add("--png", type=Path, metavar="FILE", help="also draw time and memory against length")


def check_common(args: Namespace) -> None:
    """Raises CommandError for systems that cannot be measured and files that cannot be written."""
    if len(set(args.systems)) < len(args.systems):
        raise CommandError(f"--systems {' '.join(args.systems)}: name each once")
    if args.reference not in args.systems:
        systems = " ".join(args.systems)
        raise CommandError(f"--reference {args.reference}: not among --systems {systems}; add it or choose another")
    if args.device == "cuda" and not torch.cuda.is_available():
        raise CommandError(f"--device cuda: torch {torch.__version__} finds no CUDA device; use --device cpu")
    if args.json is not None:
        check_file(args.json, "--json")
    if args.png is not None:
        check_output(args.png, force=True, flag="--png")


def settings(args: Namespace) -> dict[str, object]:
    """All flags, as JSON values."""
    values = {name: value for name, value in vars(args).items() if not callable(value)}
    return {name: str(value) if isinstance(value, Path) else value for name, value in values.items()}
