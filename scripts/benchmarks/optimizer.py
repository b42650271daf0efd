"""A step of Apollo beside torch's own optimizers, on random parameters and gradients.

Every second tensor is a vector, like biases and norms; all optimizers change the same parameters. Apollo's state has
three tensors for each parameter tensor (12 bytes per parameter in fp32), AdamW's two.
"""

from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Iterator
from itertools import chain
from typing import Any

import torch
from torch import Tensor

from fairseq_luna.commands.command_line import CommandError, positive
from fairseq_luna.optim.apollo import Apollo

from . import goals
from .arguments import DTYPES, add_common, check_common
from .command import Column, Command, Row
from .memory import memory_column, peak_mib
from .timing import Step, compared, in_turn, named, ratios, spread, stopwatch, time_columns, walls, warm_up

# So small that parameters stay in their initial range.
LR = 1e-7
VECTOR = 512


def one_by_one(params: list[Tensor]) -> Apollo:
    """Each tensor in its own group, so that no multi-tensor call handles several."""
    return Apollo([{"params": [param]} for param in params], lr=LR)


SYSTEMS: dict[str, Callable[[list[Tensor]], torch.optim.Optimizer]] = {
    "adamw": lambda params: torch.optim.AdamW(params, lr=LR, foreach=True),
    "apollo": lambda params: Apollo(params, lr=LR),
    "apollo-one-by-one": one_by_one,
    "sgd": lambda params: torch.optim.SGD(params, lr=LR, foreach=True),
}


def add_arguments(parser: ArgumentParser) -> None:
    add_common(parser, systems=SYSTEMS, reference="adamw", rounds=9, png=False)
    parser.add_argument("--parameters", type=positive, default=65_000_000, help="default: 65000000")
    parser.add_argument("--tensors", type=positive, default=200)


def check(args: Namespace) -> None:
    check_common(args)
    if args.parameters < args.tensors:
        raise CommandError(
            f"--parameters {args.parameters}: fewer than --tensors {args.tensors}; each needs at least one"
        )


def parameters(args: Namespace) -> list[Tensor]:
    """Tensors with ``args.parameters`` elements in total, and gradients."""
    torch.manual_seed(0)
    made = []
    for numel in sizes(args.parameters, args.tensors):
        param = torch.randn(numel, device=args.device, dtype=DTYPES[args.dtype]).requires_grad_()
        param.grad = torch.randn_like(param)
        made.append(param)
    return made


def sizes(total: int, tensors: int) -> list[int]:
    """Every second tensor is a vector of 512, or of an equal share if that is smaller; the others share the rest."""
    vectors = tensors // 2
    vector = min(VECTOR, total // tensors)
    share, more = divmod(total - vectors * vector, tensors - vectors)
    large = [share + (index < more) for index in range(tensors - vectors)]
    return [large[index // 2] if index % 2 == 0 else vector for index in range(tensors)]


def step_of(system: str, args: Namespace) -> Step:
    """A step in a fresh process, after the first one, which creates the state."""
    step = SYSTEMS[system](parameters(args)).step
    step()
    return step


def state_bytes(optimizer: torch.optim.Optimizer) -> int:
    """The size of all tensors in the optimizer's state."""
    kept: Iterator[Any] = chain.from_iterable(state.values() for state in optimizer.state.values())
    return sum(value.numel() * value.element_size() for value in kept if isinstance(value, Tensor))


def rows(args: Namespace) -> Iterator[Row]:
    """One for each optimizer."""
    params = parameters(args)
    optimizers = {name: SYSTEMS[name](params) for name in args.systems}
    steps = {name: optimizer.step for name, optimizer in optimizers.items()}
    warm_up(steps, 1 + args.warm_up)  # the first step creates the state
    taken = in_turn(steps, rounds=args.rounds, seconds=stopwatch(args.device))
    size = {name: state_bytes(optimizer) / args.parameters for name, optimizer in optimizers.items()}
    del params, optimizers, steps
    for name, row in compared(taken, args.reference).items():
        row |= {"parameters": args.parameters, "tensors": args.tensors, "state_bytes_per_parameter": size[name]}
        if not args.no_peak:
            row["peak_mib"] = peak_mib(step_of, name, args, device=args.device, threads=args.threads)
        if name == "apollo" and "apollo-one-by-one" in taken:
            faster = spread(ratios(walls(taken["apollo-one-by-one"]), walls(taken["apollo"])))
            row |= named("times_as_fast_as_one_by_one", faster)
        yield row | {"goals": goals.of_optimizer(row, args)}


def columns(args: Namespace) -> list[Column]:
    return [
        Column("optimizer", lambda row: row["system"]),
        *time_columns(args.reference),
        Column("state bytes a parameter", lambda row: f"{row['state_bytes_per_parameter']:.1f}"),
        memory_column(),
        goals.column(),
    ]


def title(args: Namespace) -> str:
    return (
        f"An optimizer's step on {args.parameters:,} parameters in {args.tensors} tensors; {args.rounds} rounds; the "
        "peak excludes the state"
    )


COMMAND = Command(
    help="a step of Apollo beside torch's AdamW and SGD",
    description=__doc__,
    add_arguments=add_arguments,
    check=check,
    title=title,
    rows=rows,
    columns=columns,
    quick={"rounds": 5, "no_peak": True},
)
