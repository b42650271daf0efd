"""Run every model and Apollo on a CUDA device that computes nothing, and say what a GPU would see.

    make check-cuda

Tensors are fake: they have a shape, a dtype and a device, but no data. Each run is a line: the dtypes of its results,
where the host waits for the device, and copies between the two. A tensor on the wrong device, a missing gradient,
logits of another dtype or an exception is a fault; with one, the exit status is 1. docs/reliability.md says what this
cannot tell. Needs torch's CUDA build, and no GPU.
"""

import logging
import sys
import traceback
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import NamedTuple

if __name__ == "__main__":  # before fairseq is imported, which logs much
    logging.disable(logging.WARNING)
    warnings.simplefilter("ignore")

import torch

from cuda_checks.runs import CLASSIFIER, Precision, Shape, build, run_apollo, run_model
from cuda_checks.watch import Seen, place
from fairseq_luna.commands.command_line import CommandError, Parser, command
from shared.variants import APOLLO, READERS, VARIANTS

TEXTS = {"max_positions": 512}
MODELS = VARIANTS | {"classifier": {"family": CLASSIFIER, **TEXTS}}
MODELS |= {f"reader-{name}": {**flags, **TEXTS} for name, flags in READERS.items()}
SHAPES = [Shape(3, 7, 9, False), Shape(4, 7, 9, True), Shape(2, 40, 45, True), Shape(2, 300, 260, False)]
SHAPES += [Shape(3, 300, 260, True)]
PRECISIONS = {
    "fp32": Precision(torch.float32),
    "fp16": Precision(torch.float16),
    "bf16": Precision(torch.bfloat16),
    "autocast-fp16": Precision(torch.float32, torch.float16),
    "autocast-bf16": Precision(torch.float32, torch.bfloat16),
}


class Run(NamedTuple):
    """A line of the report: its name, what to call, and the dtype that the logits should have."""

    name: str
    parts: Callable[[], Iterable[Seen]]
    logits: torch.dtype


@command
def main(arguments: Sequence[str] | None = None) -> int:
    parser = Parser(__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"only these: {', '.join([*MODELS, 'apollo'])}")
    names = parser.parse_args(arguments).names or [*MODELS, "apollo"]
    if unknown := set(names) - {*MODELS, "apollo"}:
        raise CommandError(f"unknown: {', '.join(sorted(unknown))}; known: {', '.join([*MODELS, 'apollo'])}")
    if not torch.cuda.is_available():
        raise CommandError("there is no CUDA device, not even a fake one: run make check-cuda")
    passed = [passes(*each) for name in names for each in (apollo_runs() if name == "apollo" else model_runs(name))]
    print(f"{sum(passed)} of {len(passed)} runs have no fault")
    return 0 if all(passed) else 1


def model_runs(name: str) -> Iterator[Run]:
    model = build(**MODELS[name])
    for shape in SHAPES:
        for key, precision in PRECISIONS.items():
            logits = precision.autocast or precision.parameters
            yield Run(f"{name}, {key}, {shape}", partial(run_model, model, shape, precision), logits)


def apollo_runs() -> Iterator[Run]:
    model = build("luna")
    for mode, options in APOLLO.items():
        for dtype in (torch.float32, torch.float16, torch.bfloat16):
            yield Run(f"apollo, {mode}, {dtype}", partial(run_apollo, model, dtype, **options), dtype)


def passes(name: str, parts: Callable[[], Iterable[Seen]], logits: torch.dtype) -> bool:
    """Whether a run has no fault; prints its line."""
    faults, seen = [], []
    try:
        for part in parts():
            faults += part.faults(logits)
            seen.append(str(part))
    except Exception as error:
        where = place(reversed(list(traceback.walk_tb(error.__traceback__))))
        faults.append(f"{type(error).__name__} at {where}: {str(error).partition(chr(10))[0]}")
    print(" | ".join(["FAULT" if faults else "ok", name, *faults, *seen]), flush=True)
    return not faults


if __name__ == "__main__":
    sys.exit(main())
