"""A step of Apollo and of fairseq's Adam, patched and not, beside torch's AdamW, on random parameters and gradients.

Every second tensor is a vector, like biases and norms. Apollo's state has three tensors for each parameter tensor (12
bytes per parameter in fp32), the others' two.
"""

import inspect
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator
from functools import partial

import torch
from fairseq.optim.adam import Adam
from torch import Tensor

import fairseq_luna.models  # noqa: F401 (patches fairseq's Adam)
from fairseq_luna.command_line import CommandError, positive
from fairseq_luna.optim.apollo import Apollo

from .flags import DTYPES, Row
from .timing import MEMORY, TIMES, Step, measured

COLUMNS = {"optimizer": "{system}", **TIMES, "state bytes a parameter": "{state_bytes:.1f}", **MEMORY}
LR = 1e-7  # so small that parameters stay in their initial range
VECTOR = 512


class UnpatchedAdam(Adam):
    """As fairseq computes it, tensor by tensor."""

    step = inspect.unwrap(Adam.step)


SYSTEMS = {
    "adamw": partial(torch.optim.AdamW, lr=LR, foreach=True),
    "apollo": partial(Apollo, lr=LR),
    "fairseq-adam": partial(UnpatchedAdam, lr=LR, weight_decay=0.01),
    "adam": partial(Adam, lr=LR, weight_decay=0.01),
}
VARIANTS, REFERENCE, ROUNDS = (), "adamw", 9


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("--parameters", type=positive, default=65_000_000, help="default: 65000000")
    parser.add_argument("--tensors", type=positive, default=200)


def check(args: Namespace) -> None:
    if args.parameters < VECTOR * args.tensors:
        raise CommandError(f"--parameters {args.parameters}: {VECTOR} for each of --tensors {args.tensors} or more")


def parameters(args: Namespace) -> list[Tensor]:
    """Tensors with ``args.parameters`` elements in total, and gradients; every second one is a vector."""
    torch.manual_seed(0)
    vectors = args.tensors // 2
    share, more = divmod(args.parameters - VECTOR * vectors, args.tensors - vectors)
    made = []
    for index in range(args.tensors):
        count = VECTOR if index % 2 else share + (index // 2 < more)
        param = torch.randn(count, device=args.device, dtype=DTYPES[args.dtype]).requires_grad_()
        param.grad = torch.randn_like(param)
        made.append(param)
    return made


def warm(name: str, args: Namespace) -> Step:
    """A step after the first one, which creates the state."""
    step = SYSTEMS[name](parameters(args)).step
    step()
    return step


def rows(args: Namespace) -> Iterator[Row]:
    """One for each optimizer."""
    made: dict[str, torch.optim.Optimizer] = {}

    def prepare(name: str) -> Step:
        made[name] = SYSTEMS[name](parameters(args))
        return made[name].step

    for row in measured(args, prepare, warm, args, warm_up=1 + args.warm_up):
        state = state_bytes(made[row["system"]]) / args.parameters if made else None
        yield row | {"state_bytes": state}


def state_bytes(optimizer: torch.optim.Optimizer) -> int:
    """The size of all tensors in the optimizer's state."""
    kept = (value for state in optimizer.state.values() for value in state.values())
    return sum(value.nbytes for value in kept if isinstance(value, Tensor))
