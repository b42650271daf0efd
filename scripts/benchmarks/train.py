"""A training step of encoder-decoders: fairseq's criterion, forward and backward, and optionally an optimizer.

Systems whose names end in -recorded replay a recorded step, as with fairseq-train's --record-training; -compiled stands
for --compile-layers.

All models but Luna have fairseq's softmax attention from target to source, whose memory is proportional to the product
of both lengths: set --source-length to see how the rest grows.
"""

from argparse import ArgumentParser, ArgumentTypeError, Namespace
from collections.abc import Iterator
from functools import partial
from typing import NamedTuple

from fairseq import optim

from fairseq_luna import cuda_graph
from fairseq_luna.command_line import CommandError, positive
from fairseq_luna.recorded_training.gradients import FlatGradients
from fairseq_luna.recorded_training.recorded_step import RecordedStep

from . import systems
from .flags import Row
from .systems import add_sizes, batch, build
from .timing import MEMORY, TIMES, Step, measured


class Shape(NamedTuple):
    """Tokens of a target, and of its source unless --source-length is given, and sentences of a batch."""

    length: int
    sentences: int

    def __str__(self) -> str:
        return f"{self.length}x{self.sentences}"


SYSTEMS, VARIANTS, REFERENCE, ROUNDS = systems.SYSTEMS, systems.VARIANTS, "transformer", 5
COLUMNS = {"length x batch": "{length} x {batch}", "model": "{system}", **TIMES, **MEMORY}
SHAPES = [Shape(25, 40), Shape(128, 8), Shape(512, 2), Shape(1024, 1), Shape(2048, 1)]
OPTIMIZERS = {  # the learning rate is so small that the model hardly changes
    "none": (),
    "adam": ("--optimizer=adam", "--lr=1e-5"),
    "apollo": ("--optimizer=apollo", "--lr=1e-5", "--lr-scheduler=milestone", "--warmup-updates=1000"),
}


def shapes(text: str) -> list[Shape]:
    """``25x40,128x8`` as shapes."""
    try:
        return [Shape(*map(positive, part.split("x"))) for part in text.split(",")]
    except (TypeError, ArgumentTypeError):
        raise ArgumentTypeError(f"{text!r} must be LENGTHxBATCH, with commas between, such as 128x8,2048x1") from None


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("--shapes", type=shapes, default=SHAPES, help=f"default: {','.join(map(str, SHAPES))}")
    parser.add_argument("--optimizer", choices=OPTIMIZERS, default="none", help="include its step")
    parser.add_argument("--source-length", type=positive, metavar="N", help="default: the length of the target")
    parser.add_argument("--checkpoint-activations", action="store_true", help="as fairseq-train's flag")
    add_sizes(parser)


def check(args: Namespace) -> None:
    if args.optimizer != "none" and args.dtype != "float32":
        raise CommandError(f"--optimizer {args.optimizer}: needs --dtype float32")
    recorded = [system for system in args.systems if system.endswith(systems.RECORDED)]
    if recorded and args.device == "cpu":
        raise CommandError(f"--systems {' '.join(recorded)}: only --device cuda records a training step")


class TrainingStep:
    """Computes the gradients of one batch and takes a step of the optimizer."""

    def __init__(self, system: str, args: Namespace, shape: Shape) -> None:
        source_length = args.source_length or shape.length
        more = ["--checkpoint-activations"] if args.checkpoint_activations else []
        longest = max(source_length, shape.length)
        self.model, task, cfg = build(args, system, longest, [*OPTIMIZERS[args.optimizer], *more])
        self.criterion = task.build_criterion(cfg.criterion)
        self.batch = batch(args, shape.sentences, source_length, shape.length)
        self.optimizer = None
        if args.optimizer != "none":
            self.optimizer = optim.build_optimizer(cfg.optimizer, list(self.model.parameters()))
        self.model.train()
        self.gradients: FlatGradients | None = None
        if system.endswith(systems.RECORDED):
            self.record()

    def record(self) -> None:
        """Record forward and backward pass as one CUDA graph."""
        names = ("src_tokens", "prev_output_tokens")
        self.gradients = FlatGradients(self.model.parameters())
        self.recorded = RecordedStep(
            self.batch,
            model=self.model,
            criterion=self.criterion,
            optimizer=None,
            gradients=self.gradients,
            pads=dict.fromkeys(names, systems.PAD),
            has_padding=dict.fromkeys(names, False),
            record=cuda_graph.record,
        )

    def __call__(self) -> None:
        if self.gradients is None:
            self.model.zero_grad(set_to_none=True)
            loss, tokens, _ = self.criterion(self.model, self.batch)
            (loss / tokens).backward()
        else:
            self.gradients.zero()
            self.recorded.replay(self.batch)
        if self.optimizer is not None:
            self.optimizer.step()


def warm(system: str, args: Namespace, shape: Shape) -> Step:
    """A step in a fresh process, after a short one for torch's initialisation."""
    TrainingStep(system, args, Shape(8, 1))()
    return TrainingStep(system, args, shape)


def rows(args: Namespace) -> Iterator[Row]:
    """One for each shape and system."""
    for shape in args.shapes:
        for row in measured(args, partial(TrainingStep, args=args, shape=shape), warm, args, shape):
            yield row | {"length": shape.length, "batch": shape.sentences}
