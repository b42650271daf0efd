"""The causal attentions to measure, each with its naive form."""

import math
from argparse import Namespace
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from fairseq_luna.modules.pattern_projections import local, longformer, sparse, topk
from fairseq_luna.ops import feature_maps, kernel_attention
from fairseq_luna.ops.block_attention import chunked as block_chunked
from fairseq_luna.ops.block_attention import naive as block_naive
from fairseq_luna.ops.block_partition import Blocks, cut_by_size, read_blocks
from fairseq_luna.ops.external_attention import external_causal_attention, initial_slot_means
from fairseq_luna.ops.external_attention import naive as external_naive
from fairseq_luna.ops.fastformer_attention import FastformerMaps
from fairseq_luna.ops.fastformer_attention import chunked as fastformer_chunked
from fairseq_luna.ops.fastformer_attention import naive as fastformer_naive
from fairseq_luna.ops.fastformer_attention.recurrent import initial_state as initial_fastformer_state
from fairseq_luna.ops.feature_maps import naive as feature_maps_naive
from fairseq_luna.ops.kernel_attention import naive as kernel_naive
from fairseq_luna.ops.luna_causal_attention import chunked, naive
from fairseq_luna.ops.luna_causal_attention.recurrent import initial_state as initial_luna_state
from fairseq_luna.ops.luna_causal_attention.shared import pack_weights
from fairseq_luna.ops.mixed_chunk_attention import mixed_chunk_attention
from fairseq_luna.ops.mixed_chunk_attention import naive as mixed_chunk_naive
from fairseq_luna.ops.pattern_attention import naive as pattern_naive
from fairseq_luna.ops.pattern_attention import pattern_attention
from fairseq_luna.ops.synthesizer_attention import naive as synthesizer_naive
from fairseq_luna.ops.synthesizer_attention import position_attention, synthesizer_attention

from .inputs import (
    Inputs,
    block_inputs,
    dense_inputs,
    external_inputs,
    fastformer_inputs,
    flash_inputs,
    luna_inputs,
    performer_inputs,
    random_inputs,
    rfa_inputs,
    sequences,
    softmax_inputs,
    tied_luna_inputs,
)

BLOCK_SIZE = 8  # the decoder's default
# As the decoders have them by default.
PATTERNS = {pattern.__name__: pattern() for pattern in (local, longformer, sparse, topk)}


class Attention(NamedTuple):
    """An attention; both forms take the inputs by their names and return ``(B, H, T, D)``.

    ``state`` takes them too and returns what generation keeps; None if that grows or is a window.
    """

    inputs: Callable[[Namespace, int], Inputs]
    form: Callable[..., Tensor]
    naive: Callable[..., Tensor]
    state: Callable[..., tuple[Tensor, ...]] | None = None


def forward_and_backward(form: Callable[..., Tensor], inputs: Inputs) -> dict[str, Tensor]:
    """The output, and the gradient of every input that has one, for a non-constant gradient of the output."""
    out = form(**inputs)
    direction = torch.linspace(-1, 1, out.shape[-1], device=out.device, dtype=out.dtype).expand_as(out)
    learned = {name: x for name, x in inputs.items() if x.requires_grad}
    gradients = torch.autograd.grad(out, list(learned.values()), direction)
    names = [f"the gradient of {name}" for name in learned]
    return {"the output": out.detach(), **dict(zip(names, gradients, strict=True))}


def _luna(op: Callable[..., tuple[Tensor, Tensor]]) -> Callable[..., Tensor]:
    return lambda *, k, v=None, **inputs: op(k=k, v=k if v is None else v, **inputs)[0]


def _luna_state(*, pq: Tensor, v: Tensor | None = None, **_: Tensor) -> tuple[Tensor, ...]:
    return initial_luna_state(pq, tied=v is None)


def _fastformer(op: Callable[..., tuple[Tensor, Tensor]]) -> Callable[..., Tensor]:
    def form(q: Tensor, k: Tensor, v: Tensor, query_score: Tensor, key_score: Tensor) -> Tensor:
        maps = FastformerMaps(
            query_score=lambda x: (x @ query_score)[..., 0],
            key_score=lambda x: (x @ key_score)[..., 0],
            combine_key=torch.mul,
            combine_value=torch.mul,
        )
        return op(q, k, v, maps)[0]

    return form


def block_of_every_step(*args: Any, causal: bool) -> tuple[Tensor, Tensor]:
    """The fast form, with Z of every step like the naive form, not of every block."""
    y, z = block_chunked.block_attention(*args, causal=causal)
    z = read_blocks(z.transpose(1, 2).flatten(2), args[-1], causal=causal)
    return y, z.unflatten(2, y.shape[1::2]).permute(1, 2, 0, 3)


def _block(op: Callable[..., tuple[Tensor, Tensor]]) -> Callable[..., Tensor]:
    def form(q: Tensor, k: Tensor, v: Tensor, second: Tensor) -> Tensor:
        def project(summaries: Tensor) -> tuple[Tensor, Tensor, Tensor]:
            of_query, of_key, of_value = second * second.shape[-1] ** -0.5
            return summaries @ of_query, summaries @ of_key, summaries @ of_value

        return torch.cat(op(q, k, v, project, _blocks(q), causal=True), dim=-1)

    return form


def _blocks(q: Tensor) -> Blocks:
    nothing_padded = torch.zeros(q.shape[0], q.shape[2], dtype=torch.bool, device=q.device)
    return cut_by_size(nothing_padded, BLOCK_SIZE)


def _kernel(
    queries: str, keys: str, inputs: Callable[[Namespace, int], Inputs] | None = None, normaliser: str = "sum"
) -> Attention:
    """Kernel attention with these functions of the feature maps."""

    def form(kernel: Any, features: Any) -> Callable[..., Tensor]:
        of_queries, of_keys = getattr(features, queries), getattr(features, keys)
        return lambda q, k, v, **directions: kernel.kernel_causal_attention(
            of_queries(q, **directions), of_keys(k, **directions), v, normaliser=normaliser
        )

    def state(q: Tensor, k: Tensor, v: Tensor, **directions: Tensor) -> tuple[Tensor, ...]:
        return kernel_attention.initial_kernel_mean(getattr(feature_maps, keys)(k, **directions), v)

    naive_form = form(kernel_naive, feature_maps_naive)
    return Attention(inputs or softmax_inputs, form(kernel_attention, feature_maps), naive_form, state)


def _factorized_dense(blocks: Tensor, places: Tensor) -> Tensor:
    return (blocks[..., None] * places[..., None, :]).flatten(-2)[..., : blocks.shape[2]]


# The scores of the other synthesizers, and what they are made of.
SCORES: dict[str, tuple[Callable[..., Tensor], Callable[[Namespace, int], dict[str, tuple[int, ...]]]]] = {
    "random": (lambda matrix: matrix, lambda args, steps: {"matrix": (1, args.heads, steps, steps)}),
    "factorized-dense": (
        _factorized_dense,
        lambda args, steps: dict.fromkeys(
            ("blocks", "places"), (args.batch, args.heads, steps, math.isqrt(steps - 1) + 1)
        ),
    ),
    "factorized-random": (
        lambda left, right: left @ right.mT,
        lambda args, steps: dict.fromkeys(("left", "right"), (1, args.heads, steps, 8)),
    ),
}


def _synthesizer(name: str) -> Attention:
    scores, shapes = SCORES[name]

    def inputs(args: Namespace, steps: int) -> Inputs:
        return random_inputs(args, {**shapes(args, steps), **sequences(args, steps, "v")})

    def form(op: Callable[..., Tensor]) -> Callable[..., Tensor]:
        return lambda v, **made_of: op(scores(**made_of), v, causal=True)

    return Attention(inputs, form(synthesizer_attention), form(synthesizer_naive.synthesizer_attention))


def _flash(op: Callable[..., Tensor]) -> Callable[..., Tensor]:
    return lambda **inputs: op(**inputs, chunk_size=len(inputs["bias"]), causal=True)


def softmax(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """torch's fused attention."""
    return F.scaled_dot_product_attention(q, k, v, is_causal=True)


def softmax_naive(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    scores = q.float() @ k.float().transpose(-1, -2) / q.shape[-1] ** 0.5
    later = torch.ones(scores.shape[-2:], dtype=torch.bool, device=q.device).triu(1)
    return (scores.masked_fill(later, -torch.inf).softmax(-1) @ v.float()).to(q.dtype)


def cumulative_prefix_attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Prefix attention by a cumulative sum of all outer products: short, but with T x D x E elements per head."""
    states = (k[..., :, None] * v[..., None, :]).cumsum(2)
    steps = torch.arange(1, q.shape[2] + 1, device=q.device, dtype=q.dtype)
    return (q[..., None, :] @ states).squeeze(-2) / steps[:, None]


def luna_cumulative(q: Tensor, k: Tensor, v: Tensor, pq: Tensor, pk: Tensor) -> tuple[Tensor, Tensor]:
    pack = pack_weights(pq, pk, "softplus")
    unpack = cumulative_prefix_attention(q * q.shape[-1] ** -0.5, k, pack).softmax(-1)
    return cumulative_prefix_attention(unpack, pack, v), unpack


_LUNA_NAIVE = _luna(naive.luna_causal_attention)
_FASTFORMER_NAIVE = _fastformer(fastformer_naive.fastformer_causal_attention)

ATTENTIONS = {
    "luna-naive": Attention(luna_inputs, _LUNA_NAIVE, _LUNA_NAIVE),
    "luna-cumulative-sum": Attention(luna_inputs, _luna(luna_cumulative), _LUNA_NAIVE),
    "luna-chunked": Attention(luna_inputs, _luna(chunked.luna_causal_attention), _LUNA_NAIVE, _luna_state),
    "luna-tied": Attention(tied_luna_inputs, _luna(chunked.luna_causal_attention), _LUNA_NAIVE, _luna_state),
    "fastformer": Attention(
        fastformer_inputs,
        _fastformer(fastformer_chunked.fastformer_causal_attention),
        _FASTFORMER_NAIVE,
        lambda q, **_: initial_fastformer_state(q),
    ),
    "block": Attention(block_inputs, _block(block_of_every_step), _block(block_naive.block_attention)),
    "linear": _kernel("elu_features", "elu_features"),
    "performer": _kernel("positive_query_features", "positive_key_features", performer_inputs),
    "rfa": _kernel("fourier_features", "fourier_features", rfa_inputs, "bounded"),
    "efficient": _kernel("softmax_features", "exponential_features", normaliser="each feature"),
    "external": Attention(
        external_inputs,
        external_causal_attention,
        external_naive.external_causal_attention,
        lambda q, keys, **_: initial_slot_means(q, keys),
    ),
    **{
        name: Attention(
            softmax_inputs,
            partial(pattern_attention, pattern=pattern, causal=True),
            partial(pattern_naive.pattern_attention, pattern=pattern, causal=True),
        )
        for name, pattern in PATTERNS.items()
    },
    "flash": Attention(flash_inputs, _flash(mixed_chunk_attention), _flash(mixed_chunk_naive.mixed_chunk_attention)),
    "synthesizer-dense": Attention(
        dense_inputs,
        partial(position_attention, causal=True),
        partial(synthesizer_naive.position_attention, causal=True),
    ),
    **{f"synthesizer-{name}": _synthesizer(name) for name in SCORES},
    "softmax": Attention(softmax_inputs, softmax, softmax_naive),
}
