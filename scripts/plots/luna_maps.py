"""Luna's weights for a sentence pair."""

import inspect
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

import torch
from torch import Tensor

from fairseq_luna.modules import LunaAttention, LunaCausalAttention
from fairseq_luna.ops.luna_causal_attention import pack_weights
from plots.convolved import convolved

SOFTMAX = "each row sums to 1"


class LunaWeights(NamedTuple):
    """The weights of one sentence, for each head."""

    pack: Tensor  # (H, L, S): the weight of each word in each slot
    unpack: Tensor  # (H, T, L): the weight of each slot for each word
    through: Tensor  # (H, T, S): the weight of each word for each other word, through the slots


@contextmanager
def recorded(module: LunaAttention) -> Iterator[list[LunaWeights]]:
    """Record the weights of the first sentence of each forward pass of ``module``.

    "through" is the module's own result of ``need_weights``: the unpack weights times the pack weights averaged over
    their heads, because every unpack head reads the slots of all pack heads.
    """
    seen: list[LunaWeights] = []
    steps: list[Tensor] = []
    attend = module.attend

    def attend_with_weights(
        q: Tensor, k: Tensor, v: Tensor, padding_mask: Tensor | None, need_weights: bool, bias: Tensor | None = None
    ) -> tuple[Tensor, Tensor | None]:
        out, weights = attend(q, k, v, padding_mask, True, bias)
        assert weights is not None
        steps.append(weights[0])
        if len(steps) == 2:
            pack, unpack = steps
            seen.append(LunaWeights(pack, unpack, unpack @ pack.mean(0)))
            steps.clear()
        return out, weights if need_weights else None

    in_place_of = {
        "attend": attend_with_weights,
        "pack_folded": _never,  # the folded forms do not call attend
        "unpack_folded": _never,
    }
    for name, method in in_place_of.items():
        setattr(module, name, method)
    try:
        yield seen
    finally:
        for name in in_place_of:
            delattr(module, name)


def _never(*_: object) -> None:
    return None


@contextmanager
def recorded_causal(module: LunaCausalAttention) -> Iterator[list[LunaWeights]]:
    """The same for a causal module and whole sequences.

    Its pack weights are not normalised: each is a positive function of one word and one slot, 0 for a padded word.
    Step t reads the mean over the words up to t, so that its "through" weights are ``U_t · A_j / t``: their product
    with the values is the output, but they do not sum to 1. Words of ``memory`` (--cross-self-attention) are the first
    columns.
    """
    seen: list[LunaWeights] = []

    def after_forward(module: LunaCausalAttention, args: tuple, kwargs: dict, output: tuple[Tensor, Tensor]) -> None:
        given = inspect.signature(module.forward).bind(*args, **kwargs).arguments
        unpack = output[1][:, 0]
        mask = given.get("padding_mask")
        query = convolved(module, given["query"], mask, causal=True)
        parts = [(given.get("memory"), given.get("memory_padding_mask")), (query, mask)]
        words = torch.cat([x[:, :1] for x, _ in parts if x is not None])
        real = torch.cat(
            [x.new_ones(len(x)) if mask is None else (~mask[0]).to(x.dtype) for x, mask in parts if x is not None]
        )
        pk = module.pack_keys(words)
        pack = pack_weights(module.packed_queries(given["packed"][:, :1]), pk, module.activation)[0]
        pack = pack * real[:, None]
        count = real.cumsum(0).clamp(min=1)[-unpack.shape[1] :, None]
        through = (unpack @ pack.transpose(1, 2)).tril(len(words) - unpack.shape[1]) / count
        seen.append(LunaWeights(pack.transpose(1, 2), unpack, through))

    handle = module.register_forward_hook(after_forward, with_kwargs=True)
    try:
        yield seen
    finally:
        handle.remove()
