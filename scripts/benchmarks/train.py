"""A training step of encoder-decoders: fairseq's criterion, forward and backward, and optionally an optimizer.

--memory measures only the peak memory of a step, for one sentence of each of --lengths, with luna_tiny's sizes. All
models but Luna have fairseq's softmax attention from target to source, whose memory is proportional to the product of
both lengths: set --source-length to see how the rest grows.
"""

from argparse import ArgumentParser, ArgumentTypeError, Namespace
from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple

from fairseq import optim

from fairseq_luna.commands.command_line import CommandError, positive

from . import goals
from .arguments import add_common, check_common
from .command import Column, Command, Panel, Row
from .memory import memory_column, peak_mib
from .models import SMALL, SYSTEMS, TINY, VARIANTS, Sizes, add_size_arguments, build, sample, sizes_of
from .timing import Step, compared, in_turn, stopwatch, time_columns, warm_up

OPTIMIZERS = ("none", "adam", "apollo")
MEMORY_LENGTHS = [1024, 4096, 16384, 65536]
QUICK_LENGTHS = MEMORY_LENGTHS[:3]
MEMORY_SYSTEMS = ("luna", "fastformer")


class Peak(NamedTuple):
    """MiB of a step for one sentence; None if memory ran out."""

    length: int
    mib: float | None


class Shape(NamedTuple):
    """Tokens of a target, and of its source unless --source-length is given, and sentences of a batch."""

    length: int
    sentences: int

    def __str__(self) -> str:
        return f"{self.length}x{self.sentences}"


SHAPES = [Shape(25, 40), Shape(128, 8), Shape(512, 2), Shape(1024, 1), Shape(2048, 1)]


def shapes(text: str) -> list[Shape]:
    """``25x40,128x8`` as shapes."""
    try:
        return [Shape(*map(positive, part.split("x"))) for part in text.split(",")]
    except (TypeError, ArgumentTypeError):
        raise ArgumentTypeError(f"{text!r} must be LENGTHxBATCH, with commas between, such as 128x8,2048x1") from None


def add_arguments(parser: ArgumentParser) -> None:
    add_common(parser, systems=SYSTEMS, variants=VARIANTS, reference="transformer", rounds=5)
    parser.set_defaults(systems=None)
    parser.add_argument("--shapes", type=shapes, default=SHAPES, help=f"default: {','.join(map(str, SHAPES))}")
    parser.add_argument("--optimizer", choices=OPTIMIZERS, default="none", help="include its step")
    parser.add_argument("--source-length", type=positive, metavar="N", help="default: that of the target")
    parser.add_argument("--checkpoint-activations", action="store_true", help="as fairseq-train's flag")
    parser.add_argument("--memory", action="store_true", help="measure only memory, for --lengths")
    parser.add_argument("--lengths", type=positive, nargs="+", default=MEMORY_LENGTHS, metavar="N")
    add_size_arguments(parser)


def check(args: Namespace) -> None:
    if args.systems is None:
        args.systems = list(MEMORY_SYSTEMS if args.memory else SYSTEMS)
    if args.memory:
        args.reference = args.systems[0]
        if args.no_peak:
            raise CommandError("--memory --no-peak: measures nothing; leave out one of them")
    elif args.lengths not in (MEMORY_LENGTHS, QUICK_LENGTHS):
        raise CommandError(f"--lengths {' '.join(map(str, args.lengths))}: is for --memory; give --shapes instead")
    check_common(args)
    if args.optimizer != "none" and args.dtype != "float32":
        raise CommandError(f"--optimizer {args.optimizer}: needs --dtype float32")
    args.sizes = sizes_of(args, TINY if args.memory else SMALL)


class TrainingStep:
    """Computes the gradients of one batch and takes a step of the optimizer."""

    def __init__(self, system: str, args: Namespace, shape: Shape) -> None:
        flags = optimizer_flags(args.optimizer)
        more = [*flags, *(["--checkpoint-activations"] if args.checkpoint_activations else [])]
        source_length = args.source_length or shape.length
        self.model, task, cfg = build(args, system, args.sizes, max(source_length, shape.length), more)
        self.criterion = task.build_criterion(cfg.criterion)
        self.optimizer = optim.build_optimizer(cfg.optimizer, list(self.model.parameters())) if flags else None
        self.batch = sample(shape.sentences, source_length, shape.length, args.sizes, args.device)
        self.model.train()

    def __call__(self) -> None:
        self.model.zero_grad(set_to_none=True)
        loss, tokens, _ = self.criterion(self.model, self.batch)
        (loss / tokens).backward()
        if self.optimizer is not None:
            self.optimizer.step()


def optimizer_flags(name: str) -> list[str]:
    """Flags of fairseq-train; the learning rate is so small that the model hardly changes."""
    if name == "none":
        return []
    warm_up_flags = ["--lr-scheduler=milestone", "--warmup-updates=1000"] if name == "apollo" else []
    return [f"--optimizer={name}", "--lr=1e-5", *warm_up_flags]


def warm_step_of(system: str, args: Namespace, shape: Shape) -> Step:
    """A step in a fresh process, after a short one for torch's initialisation."""
    TrainingStep(system, args, Shape(8, 1))()
    return TrainingStep(system, args, shape)


def rows(args: Namespace) -> Iterator[Row]:
    """One for each shape and system."""
    if args.memory:
        return memory_rows(args)
    return time_rows(args)


def time_rows(args: Namespace) -> Iterator[Row]:
    for shape in args.shapes:
        steps = {system: TrainingStep(system, args, shape) for system in args.systems}
        warm_up(steps, args.warm_up)
        taken = in_turn(steps, rounds=args.rounds, seconds=stopwatch(args.device))
        del steps
        for system, row in compared(taken, args.reference).items():
            tokens = shape.length * shape.sentences
            row |= {"length": shape.length, "batch": shape.sentences}
            row |= {"tokens_per_second": 1000 * tokens / row["ms"], "us_per_token": 1000 * row["ms"] / tokens}
            if not args.no_peak:
                row["peak_mib"] = peak_of(system, args, shape)
            yield row | {"goals": goals.of_training(row, args)}


def memory_rows(args: Namespace) -> Iterator[Row]:
    peaks: dict[str, list[Peak]] = {system: [] for system in args.systems}
    for length in sorted(args.lengths):
        for system, earlier in peaks.items():
            earlier.append(Peak(length, peak_of(system, args, Shape(length, 1))))
            row = {"system": system, "length": length, "batch": 1, "peak_mib": earlier[-1].mib} | growth(earlier)
            yield row | {"goals": goals.of_training_memory(row, args)}


def growth(peaks: list[Peak]) -> Row:
    """KiB for each additional token between the last two lengths, and its ratio to that between the first two.

    These are differences because a step also needs memory for the model's gradients, which hides the growth.
    """
    slopes = [
        None
        if None in (shorter.mib, longer.mib)
        else 1024 * (longer.mib - shorter.mib) / (longer.length - shorter.length)
        for shorter, longer in pairwise(peaks)
    ]
    row = {"kib_per_token": slopes[-1]} if slopes else {}
    if len(slopes) > 1:
        row["growth"] = None if None in (slopes[0], slopes[-1]) else slopes[-1] / slopes[0]
    return row


def peak_of(system: str, args: Namespace, shape: Shape) -> float | None:
    return peak_mib(warm_step_of, system, args, shape, device=args.device, threads=args.threads)


def columns(args: Namespace) -> list[Column]:
    first = [Column("length x batch", lambda row: f"{row['length']} x {row['batch']}")]
    first.append(Column("model", lambda row: row["system"]))
    if args.memory:
        return [
            *first,
            memory_column(),
            Column("KiB a token more", lambda row: number(row, "kib_per_token")),
            Column("growth", lambda row: number(row, "growth")),
            goals.column(),
        ]
    speed = Column("target tokens/s", lambda row: f"{row['tokens_per_second']:,.0f}")
    return [*first, *time_columns(args.reference), speed, memory_column(), goals.column()]


def number(row: Row, key: str) -> str:
    return "" if row.get(key) is None else f"{row[key]:.2f}"


def title(args: Namespace) -> str:
    step = "forward and backward" if args.optimizer == "none" else f"forward, backward and {args.optimizer}"
    source = f"; sources of {args.source_length} tokens" if args.source_length else ""
    twice = "; activations checkpointed" if args.checkpoint_activations else ""
    return f"A training step, {step}: {describe(args.sizes)}{source}{twice}"


def describe(sizes: Sizes) -> str:
    return (
        f"{sizes.layers}+{sizes.layers} layers, {sizes.embed_dim}/{sizes.ffn_dim}, {sizes.heads} heads, "
        f"L = {sizes.slots}, vocabulary {sizes.vocabulary:,}"
    )


COMMAND = Command(
    help="a training step of whole models, beside fairseq's transformer",
    description=__doc__,
    add_arguments=add_arguments,
    check=check,
    title=title,
    rows=rows,
    columns=columns,
    panels=(Panel("us_per_token", "microseconds per target token"), Panel("peak_mib", "peak MiB")),
    quick={"rounds": 2, "shapes": SHAPES[1:-1], "lengths": QUICK_LENGTHS},
)
