"""Attentions alone, forward and backward.

Luna's causal attention in several forms beside torch's, without projections; and by name the modules of encoders and
decoders, with their projections.
"""

from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Iterator
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fairseq_luna.command_line import positive
from fairseq_luna.models.mixed.chosen_attentions import available_in
from fairseq_luna.ops.luna_causal_attention import (
    luna_causal_attention,
    luna_causal_attention_reference,
    pack_weights,
)
from shared.by_name import attention

from .flags import DTYPES, Row
from .timing import MEMORY, TIMES, Step, measured


def softmax(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """torch's fused attention."""
    return F.scaled_dot_product_attention(q, k, v, is_causal=True)


def luna(op: Callable[..., tuple[Tensor, Tensor]]) -> Callable[..., Tensor]:
    """Without values the keys are the values too, as in the models by default."""
    return lambda *, k, v=None, **inputs: op(k=k, v=k if v is None else v, **inputs)[0]


def cumulative_sum(q: Tensor, k: Tensor, v: Tensor, pq: Tensor, pk: Tensor) -> tuple[Tensor, Tensor]:
    """Luna by cumulative sums of all outer products: short, but with T x D x E elements per head."""

    def prefix_attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        states = (k[..., :, None] * v[..., None, :]).cumsum(2)
        steps = torch.arange(1, q.shape[2] + 1, device=q.device, dtype=q.dtype)
        return (q[..., None, :] @ states).squeeze(-2) / steps[:, None]

    pack = pack_weights(pq, pk, "softplus")
    unpack = prefix_attention(q * q.shape[-1] ** -0.5, k, pack).softmax(-1)
    return prefix_attention(unpack, pack, v), unpack


# Each form, and its inputs.
FORMS = {
    "luna-naive": (luna(luna_causal_attention_reference), "q k v pq pk"),
    "luna-cumulative-sum": (luna(cumulative_sum), "q k v pq pk"),
    "luna-chunked": (luna(luna_causal_attention), "q k v pq pk"),
    "luna-tied": (luna(luna_causal_attention), "q k pq pk"),
    "softmax": (softmax, "q k v"),
}
MODULES = {f"{place}-{name}": (name, place) for place in ("encoder", "decoder") for name in available_in(place)}

SYSTEMS, VARIANTS, REFERENCE, ROUNDS = tuple(FORMS), tuple(MODULES), "luna-naive", 3
COLUMNS = {"T": "{length}", "attention": "{system}", **TIMES, **MEMORY}


def add_arguments(parser: ArgumentParser) -> None:
    lengths = [128, 512, 1024, 2048, 4096]
    parser.add_argument("--lengths", type=positive, nargs="+", default=lengths, metavar="T")
    parser.add_argument("--batch", type=positive, default=1)
    parser.add_argument("--heads", type=positive, default=16)
    parser.add_argument("--head-size", type=positive, default=64, help="channels of a head (default: 64)")
    parser.add_argument("--slots", type=positive, default=32, help="L, Luna's packed slots (default: 32)")


def forward_and_backward(form: Callable[..., Tensor], inputs: dict[str, Tensor], *more: Tensor) -> list[Tensor]:
    """The output, and the gradients of ``inputs`` and ``more``, for a non-constant gradient of the output."""
    out = form(**inputs)
    direction = torch.linspace(-1, 1, out.shape[-1], device=out.device, dtype=out.dtype).expand_as(out)
    return [out.detach(), *torch.autograd.grad(out, [*inputs.values(), *more], direction)]


def inputs_of(name: str, args: Namespace, length: int) -> dict[str, Tensor]:
    torch.manual_seed(0)
    made = {"device": args.device, "dtype": DTYPES[args.dtype], "requires_grad": True}
    if name in MODULES:
        return {"x": torch.randn(length, args.batch, args.heads * args.head_size, **made)}
    steps = {key: args.slots if key == "pq" else length for key in FORMS[name][1].split()}
    return {key: torch.randn(args.batch, args.heads, steps[key], args.head_size, **made) for key in steps}


def step_of(name: str, args: Namespace, length: int) -> Step:
    inputs = inputs_of(name, args, length)
    if name in FORMS:
        return partial(forward_and_backward, FORMS[name][0], inputs)
    channels = args.heads * args.head_size
    module: nn.Module = attention(*MODULES[name], embed_dim=channels, heads=args.heads, longest=length)
    module = module.to(device=args.device, dtype=DTYPES[args.dtype]).train()
    return partial(forward_and_backward, module, inputs, *module.parameters())


def warm(name: str, args: Namespace, length: int) -> Step:
    """A step in a fresh process, after a short one for torch's initialisation."""
    step_of(name, args, 16)()
    return step_of(name, args, length)


def rows(args: Namespace) -> Iterator[Row]:
    """One for each length and system."""
    for length in args.lengths:
        for row in measured(args, partial(step_of, args=args, length=length), warm, args, length):
            yield row | {"length": length}
