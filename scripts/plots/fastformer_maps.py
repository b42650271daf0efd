"""Fastformer's two softmaxes over time, the weights of the global query and the global key."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

import torch
from torch import Tensor

from fairseq_luna.modules import FastformerCausalAttention
from fairseq_luna.modules.fastformer_projections import FastformerProjections
from fairseq_luna.ops.fastformer_attention.shared import scaled_score
from plots.convolved import convolved


class FastformerWeights(NamedTuple):
    """The weights of one sentence: ``(H, 1, T)``, or ``(H, T, T)`` with a row for each step if causal."""

    query: Tensor
    key: Tensor


@contextmanager
def recorded(module: FastformerProjections) -> Iterator[list[FastformerWeights]]:
    """Record the weights of the first sentence of each forward pass of ``module``.

    The modules compute only weighted means; the weights are computed here from their scores (docs/mathematics.md).
    """
    seen: list[FastformerWeights] = []

    def after_forward(module: FastformerProjections, args: tuple, kwargs: dict, output: Tensor) -> None:
        mask, causal = kwargs.get("padding_mask"), isinstance(module, FastformerCausalAttention)
        x = convolved(module, args[0], mask, causal=causal)[:, :1]
        real = torch.ones(1, len(x), dtype=torch.bool) if mask is None else ~mask[:1]
        if causal:
            real = real & torch.ones(len(x), len(x), dtype=torch.bool).tril()
        maps = module.maps()
        q, k, _ = module.queries_keys_values(x)
        query = shares(scaled_score(maps.query_score(q), q), real)
        p = maps.combine_key(query @ q, k)
        seen.append(FastformerWeights(query[0], shares(scaled_score(maps.key_score(p), p), real)[0]))

    handle = module.register_forward_hook(after_forward, with_kwargs=True)
    try:
        yield seen
    finally:
        handle.remove()


def shares(score: Tensor, seen: Tensor) -> Tensor:
    """Softmax of ``score (B, H, T)`` over the True steps of each row of ``seen (R, T)``: ``(B, H, R, T)``, else 0."""
    return score[:, :, None].masked_fill(~seen, -torch.inf).softmax(-1).nan_to_num(0.0)
