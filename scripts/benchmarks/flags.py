"""The flags that all commands have, and what is refused before anything is measured."""

from argparse import ArgumentParser, Namespace
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

from fairseq_luna.command_line import CommandError, positive

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}

# One measured system at one length, as the JSON has it. A value that could not be measured is None.
Row = dict[str, Any]


def not_negative(text: str) -> int:
    """The type of a flag that may be 0."""
    return 0 if text == "0" else positive(text)


def add_common(parser: ArgumentParser, chosen: ModuleType) -> None:
    """``chosen`` is a module of this folder that measures; VARIANTS are measured only if they are named."""
    names = [*chosen.SYSTEMS, *chosen.VARIANTS]
    listed = "; also ".join(", ".join(part) for part in (chosen.SYSTEMS, chosen.VARIANTS) if part)
    beside = f"the others' times are divided by its time within each round (default: {chosen.REFERENCE})"
    add = parser.add_argument
    add("--systems", nargs="+", choices=names, default=list(chosen.SYSTEMS), metavar="NAME", help=listed)
    add("--reference", choices=names, default=chosen.REFERENCE, metavar="NAME", help=beside)
    add("--json", type=Path, metavar="FILE", help="also write everything to this file")
    add("--device", choices=("cpu", "cuda"), default="cpu")
    add("--dtype", choices=tuple(DTYPES), default="float32")
    add("--threads", type=positive, default=1, help="of the CPU (default: 1)")
    parser.set_defaults(memory=False, no_peak=False)
    if chosen.ROUNDS:  # a count has none
        add("--rounds", type=positive, default=chosen.ROUNDS, help=f"default: {chosen.ROUNDS}")
        add("--warm-up", type=not_negative, default=1, metavar="N", help="unmeasured rounds before (default: 1)")
        add("--no-peak", action="store_true", help="do not measure peak memory")
        add("--memory", action="store_true", help="measure only peak memory")


def check_common(args: Namespace) -> None:
    """Raises CommandError for systems that cannot be measured and a file that cannot be written."""
    if len(set(args.systems)) < len(args.systems):
        raise CommandError(f"--systems {' '.join(args.systems)}: name each once")
    if args.reference not in args.systems:
        systems = " ".join(args.systems)
        raise CommandError(f"--reference {args.reference}: not among --systems {systems}; add it or choose another")
    if args.memory and args.no_peak:
        raise CommandError("--memory --no-peak: measures nothing; leave out one of them")
    if args.device == "cuda" and not torch.cuda.is_available():
        raise CommandError(f"--device cuda: torch {torch.__version__} finds no CUDA device; use --device cpu")
    if args.json and (args.json.is_dir() or not args.json.absolute().parent.is_dir()):
        raise CommandError(f"--json {args.json}: is a folder, or is in none; make the folder first")
