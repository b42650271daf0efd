"""The inputs of the causal attentions to measure."""

from argparse import Namespace

import torch
from torch import Tensor

from fairseq_luna.ops.random_directions import orthogonal_directions

from .arguments import DTYPES

Inputs = dict[str, Tensor]

CHUNK_SIZE = 256  # flash's default


def random_inputs(args: Namespace, shapes: dict[str, tuple[int, ...]]) -> Inputs:
    torch.manual_seed(0)
    return {
        name: torch.randn(shape, device=args.device, dtype=DTYPES[args.dtype], requires_grad=True)
        for name, shape in shapes.items()
    }


def sequences(args: Namespace, steps: int, *names: str) -> dict[str, tuple[int, ...]]:
    return dict.fromkeys(names, (args.batch, args.heads, steps, args.head_size))


def softmax_inputs(args: Namespace, steps: int) -> Inputs:
    return random_inputs(args, sequences(args, steps, "q", "k", "v"))


def luna_inputs(args: Namespace, steps: int) -> Inputs:
    slots = (args.batch, args.heads, args.slots, args.head_size)
    return random_inputs(args, {**sequences(args, steps, "q", "k", "v", "pk"), "pq": slots})


def tied_luna_inputs(args: Namespace, steps: int) -> Inputs:
    """Without values: they are the keys, as in the models by default."""
    return {name: x for name, x in luna_inputs(args, steps).items() if name != "v"}


def fastformer_inputs(args: Namespace, steps: int) -> Inputs:
    """Both score maps are one vector, shared by all heads."""
    score = dict.fromkeys(("query_score", "key_score"), (args.head_size, 1))
    return random_inputs(args, {**sequences(args, steps, "q", "k", "v"), **score})


def block_inputs(args: Namespace, steps: int) -> Inputs:
    """The second level's projections have no biases."""
    return random_inputs(args, {**sequences(args, steps, "q", "k", "v"), "second": (3, args.head_size, args.head_size)})


def performer_inputs(args: Namespace, steps: int) -> Inputs:
    """As many features as channels, so that its state has the size of linear attention's."""
    size = args.head_size
    directions = orthogonal_directions(size, size, generator=torch.Generator().manual_seed(0)).to(args.device)
    return {**softmax_inputs(args, steps), "directions": directions}


def rfa_inputs(args: Namespace, steps: int) -> Inputs:
    """The same; each direction gives a sine and a cosine, and is learned."""
    directions = {"directions": (args.heads, (args.head_size + 1) // 2, args.head_size)}
    return random_inputs(args, {**sequences(args, steps, "q", "k", "v"), **directions})


def external_inputs(args: Namespace, steps: int) -> Inputs:
    slots = dict.fromkeys(("keys", "values"), (args.slots, args.head_size))
    return random_inputs(args, {**sequences(args, steps, "q"), **slots})


def dense_inputs(args: Namespace, steps: int) -> Inputs:
    return random_inputs(args, {"keys": (args.heads, steps, args.head_size), **sequences(args, steps, "q", "v")})


def flash_inputs(args: Namespace, steps: int) -> Inputs:
    """One head, keys of 128 channels, values of twice all heads'; two chunks or more, so that all inputs are read."""
    keys = dict.fromkeys(("q", "k", "far_q", "far_k"), (args.batch, 1, steps, 128))
    values = (args.batch, 1, steps, 2 * args.heads * args.head_size)
    return random_inputs(args, {**keys, "v": values, "bias": (min(CHUNK_SIZE, -(-steps // 2)),)})
