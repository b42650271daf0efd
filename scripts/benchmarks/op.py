"""The causal attentions, forward and backward, without projections."""

import math
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Iterator

from torch import Tensor

from fairseq_luna.commands.command_line import CommandError, positive

from .arguments import add_common, check_common
from .attentions import ATTENTIONS, forward_and_backward
from .command import Column, Command, Panel, Row
from .inputs import Inputs
from .memory import memory_column, peak_mib
from .timing import Step, compared, in_turn, stopwatch, time_columns, warm_up

LENGTHS = [128, 512, 1024, 2048, 4096]

# Longer than any fast form's chunk, and not a multiple of it.
CHECKED_LENGTH = 300
# The largest difference relative to the largest number.
TOLERANCES = {"float32": 1e-4, "bfloat16": 3e-2}


def add_arguments(parser: ArgumentParser) -> None:
    add_common(parser, systems=ATTENTIONS, reference="luna-naive", rounds=3)
    parser.add_argument("--lengths", type=positive, nargs="+", default=LENGTHS, metavar="T")
    parser.add_argument("--batch", type=positive, default=1)
    parser.add_argument("--heads", type=positive, default=16)
    parser.add_argument("--head-size", type=positive, default=64, help="D, of queries, keys and values (default: 64)")
    parser.add_argument("--slots", type=positive, default=32, help="L, Luna's packed slots (default: 32)")


def check_outputs(args: Namespace) -> None:
    """Raises CommandError if a form does not compute the same function as its naive form."""
    for name in args.systems:
        attention = ATTENTIONS[name]
        if attention.form is attention.naive:
            continue
        inputs = attention.inputs(args, CHECKED_LENGTH)
        what, difference = largest_difference(attention.form, attention.naive, inputs)
        allowed = TOLERANCES[args.dtype]
        if not difference <= allowed:  # also refuses NaN
            raise CommandError(
                f"op {name}: {what} differs from the naive form's by {difference:.1e} of its largest number, and "
                f"{allowed:.0e} is allowed: a wrong form is not measured"
            )


def largest_difference(form: Callable[..., Tensor], naive: Callable[..., Tensor], inputs: Inputs) -> tuple[str, float]:
    """Which of the output and the gradients differs most, and by how much of its largest number."""
    expected = forward_and_backward(naive, inputs)
    computed = forward_and_backward(form, inputs)
    differences = {
        what: float((computed[what] - value).abs().max() / value.abs().max()) for what, value in expected.items()
    }
    return max(differences.items(), key=lambda pair: math.inf if math.isnan(pair[1]) else pair[1])


def step_of(name: str, args: Namespace, steps: int) -> Step:
    attention = ATTENTIONS[name]
    inputs = attention.inputs(args, steps)
    return lambda: forward_and_backward(attention.form, inputs)


def warm_step_of(name: str, args: Namespace, steps: int) -> Step:
    """The same in a fresh process, after a short step for torch's initialisation."""
    step_of(name, args, 16)()
    return step_of(name, args, steps)


def state_bytes(name: str, args: Namespace) -> int | None:
    """What generation keeps, whatever the length; None if that depends on the length."""
    attention = ATTENTIONS[name]
    return sum(part.nbytes for part in attention.state(**attention.inputs(args, 1))) if attention.state else None


def rows(args: Namespace) -> Iterator[Row]:
    """One for each length and system."""
    check_outputs(args)
    for length in args.lengths:
        steps = {name: step_of(name, args, length) for name in args.systems}
        warm_up(steps, args.warm_up)
        taken = in_turn(steps, rounds=args.rounds, seconds=stopwatch(args.device))
        del steps
        for name, row in compared(taken, args.reference).items():
            row["length"] = length
            row["state_bytes"] = state_bytes(name, args)
            if not args.no_peak:
                row["peak_mib"] = peak_mib(warm_step_of, name, args, length, device=args.device, threads=args.threads)
            yield row


def columns(args: Namespace) -> list[Column]:
    return [
        Column("T", lambda row: str(row["length"])),
        Column("attention", lambda row: row["system"]),
        *time_columns(args.reference),
        Column("state, KiB", lambda row: f"{row['state_bytes'] / 1024:,.1f}" if row["state_bytes"] else ""),
        memory_column(),
    ]


def title(args: Namespace) -> str:
    return (
        f"Causal attention, forward and backward: {args.batch} x {args.heads} heads, D = {args.head_size}, "
        f"L = {args.slots}; {args.rounds} rounds"
    )


COMMAND = Command(
    help="the causal attentions, forward and backward",
    description=__doc__,
    add_arguments=add_arguments,
    check=check_common,
    title=title,
    rows=rows,
    columns=columns,
    panels=(Panel("ms", "ms, forward and backward"), Panel("peak_mib", "peak MiB")),
    quick={"lengths": [128, 512, 2048]},
)
