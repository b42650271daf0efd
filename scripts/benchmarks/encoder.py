"""The self-attentions of encoders by name with their projections, forward and backward.

--memory measures only the peak memory, so that a length at which memory runs out does not end the run.
"""

import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator

import torch

from fairseq_luna.commands.command_line import CommandError, positive
from fairseq_luna.models.mixed.attentions import ATTENTIONS
from fairseq_luna.usage_error import UsageError
from shared.by_name import encoder_attention

from .arguments import DTYPES, add_common, check_common
from .command import Column, Command, Panel, Row
from .memory import memory_column, peak_mib
from .timing import Step, compared, in_turn, stopwatch, time_columns, warm_up

SYSTEMS = [name for name, attention in ATTENTIONS.items() if "encoder" in attention.factories()]
LENGTHS = [128, 512, 2048, 8192]


def add_arguments(parser: ArgumentParser) -> None:
    add_common(parser, systems=SYSTEMS, reference="softmax", rounds=3)
    parser.add_argument("--lengths", type=positive, nargs="+", default=LENGTHS, metavar="T")
    parser.add_argument("--batch", type=positive, default=1)
    parser.add_argument("--embed-dim", type=positive, default=512, help="channels (default: 512)")
    parser.add_argument("--heads", type=positive, default=8)
    parser.add_argument("--memory", action="store_true", help="measure only memory")


def check(args: Namespace) -> None:
    if args.memory and args.no_peak:
        raise CommandError("--memory --no-peak: measures nothing; leave out one of them")
    check_common(args)


def step_of(name: str, args: Namespace, steps: int) -> Step:
    """Computes the output, and the gradients of the input and of every parameter."""
    module = encoder_attention(name, embed_dim=args.embed_dim, heads=args.heads, longest=steps)
    module = module.to(device=args.device, dtype=DTYPES[args.dtype]).train()
    torch.manual_seed(0)
    x = torch.randn(steps, args.batch, args.embed_dim, device=args.device, dtype=DTYPES[args.dtype], requires_grad=True)
    inputs = [x, *module.parameters()]
    return lambda: torch.autograd.grad(module(x).float().square().mean(), inputs)


def warm_step_of(name: str, args: Namespace, steps: int) -> Step:
    """The same in a fresh process, after a short step for torch's initialisation."""
    step_of(name, args, 16)()
    return step_of(name, args, steps)


def rows(args: Namespace) -> Iterator[Row]:
    """One for each length and system that accepts it."""
    for length in args.lengths:
        systems = [name for name in args.systems if accepts(name, args, length)]
        measured: dict[str, Row] = {name: {"system": name, "reference": args.reference} for name in systems}
        if not args.memory:
            steps = {name: step_of(name, args, length) for name in systems}
            warm_up(steps, args.warm_up)
            taken = in_turn(steps, rounds=args.rounds, seconds=stopwatch(args.device))
            del steps
            measured = compared(taken, args.reference)
        # The reference first: the others are compared with it.
        for name in sorted(measured, key=lambda name: name != args.reference):
            row = measured[name]
            row["length"] = length
            if not args.no_peak:
                row["peak_mib"] = peak_mib(warm_step_of, name, args, length, device=args.device, threads=args.threads)
                of_reference = measured[args.reference]["peak_mib"]
                row["peak_ratio"] = row["peak_mib"] / of_reference if row["peak_mib"] and of_reference else None
            yield row


def accepts(name: str, args: Namespace, length: int) -> bool:
    """Whether ``name`` can have sequences of this length; says why not. Raises UsageError for the reference."""
    try:
        encoder_attention(name, embed_dim=args.embed_dim, heads=args.heads, longest=length)
    except UsageError as error:
        if name == args.reference:
            raise
        print(f"{name} is not measured: {error}", file=sys.stderr)
        return False
    return True


def columns(args: Namespace) -> list[Column]:
    return [
        Column("T", lambda row: str(row["length"])),
        Column("attention", lambda row: row["system"]),
        *([] if args.memory else time_columns(args.reference)),
        memory_column(),
        Column(f"/ {args.reference}", lambda row: f"{row['peak_ratio']:.2f}" if row.get("peak_ratio") else ""),
    ]


def title(args: Namespace) -> str:
    return (
        f"Self-attention of an encoder with its projections, forward and backward: {args.batch} x {args.embed_dim} "
        f"channels, {args.heads} heads"
    )


COMMAND = Command(
    help="the self-attentions of encoders by name, forward and backward",
    description=__doc__,
    add_arguments=add_arguments,
    check=check,
    title=title,
    rows=rows,
    columns=columns,
    panels=(Panel("ms", "ms, forward and backward"), Panel("peak_mib", "peak MiB")),
    quick={"lengths": [128, 512]},
)
