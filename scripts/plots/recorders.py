"""Recording the weights of attention modules.

Each function takes a module and gives a context, in which every forward pass of the module appends to a list the
weights of its first sentence, ``(H, rows, columns)`` by the kind of map.
"""

import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor, nn

from fairseq_luna.modules import LunaAttention, LunaCausalAttention, luna_attention
from fairseq_luna.ops.fastformer_attention import scaled_score
from fairseq_luna.ops.luna_causal_attention import pack_weights
from fairseq_luna.ops.padding import Padding

Weights = dict[str, Tensor]


@contextmanager
def after_forward(module: nn.Module, weights_of: Callable[[Any, dict[str, Any]], Weights]) -> Iterator[list[Weights]]:
    """Record ``weights_of`` the output and the arguments by their names."""
    seen: list[Weights] = []
    signature = inspect.signature(module.forward)

    def keep(module: nn.Module, args: tuple, kwargs: dict, output: Any) -> None:
        seen.append(weights_of(output, signature.bind(*args, **kwargs).arguments))

    handle = module.register_forward_hook(keep, with_kwargs=True)
    try:
        yield seen
    finally:
        handle.remove()


@contextmanager
def softmax(module: nn.Module) -> Iterator[list[Weights]]:
    """Of attention to the source: in self-attention fairseq may use a fast path that averages the heads."""
    flags = {"need_weights", "need_head_weights"} & inspect.signature(module.forward).parameters.keys()
    asking = module.register_forward_pre_hook(
        lambda module, args, kwargs: (args, kwargs | dict.fromkeys(flags, True)), with_kwargs=True
    )
    try:
        with after_forward(module, lambda output, given: {"weights": output[1][:, 0]}) as seen:
            yield seen
    finally:
        asking.remove()


@contextmanager
def luna(module: LunaAttention) -> Iterator[list[Weights]]:
    """ "through" is what ``need_weights`` gives: the unpack weights times the pack weights averaged over their heads,
    because every unpack head reads the slots of all pack heads.
    """
    seen: list[Weights] = []
    steps: list[Tensor] = []

    def with_weights(method: Callable[..., Any]) -> Callable[..., Any]:
        """``method`` of the module, which calls softmax attention."""
        original = luna_attention.softmax_attention

        def attend(*args: Any, need_weights: bool, **options: Any) -> tuple[Tensor, Tensor | None]:
            out, weights = original(*args, need_weights=True, **options)
            steps.append(weights[0])
            return out, weights if need_weights else None

        def recording(*args: Any, **options: Any) -> Any:
            with patch.object(luna_attention, "softmax_attention", attend):
                found = method(*args, **options)
            if len(steps) == 2:
                pack, unpack = steps
                seen.append({"pack": pack, "unpack": unpack, "through": unpack @ pack.mean(0)})
                steps.clear()
            return found

        return recording

    replaced = {
        "pack": with_weights(module.pack),
        "attend_to_source": with_weights(module.attend_to_source),
        # The folded forms call neither.
        **dict.fromkeys(("pack_folded", "unpack_folded"), lambda *_: None),
    }
    for name, method in replaced.items():
        setattr(module, name, method)
    try:
        yield seen
    finally:
        for name in replaced:
            delattr(module, name)


def luna_causal(module: LunaCausalAttention) -> Any:
    """The pack weights are not normalized: each is a positive function of one word and one slot, 0 for padding.

    Step t reads the mean over the words up to t, so that its "through" weights are ``U_t · A_j / t``: their product
    with the values is the output, but they do not sum to 1. Words of ``memory`` (--cross-self-attention) come first.
    """

    def weights_of(output: Any, given: dict[str, Any]) -> Weights:
        unpack, own = output[1][:, 0], mask_in(given, "padding_mask")
        parts = [(convolved(module, given["query"], own, causal=True), own)]
        if given.get("memory") is not None:
            parts.insert(0, (given["memory"], mask_in(given, "memory_padding_mask")))
        words = torch.cat([x[:, :1] for x, _ in parts])
        real = torch.cat([x.new_ones(len(x)) if mask is None else (~mask[0]).to(x) for x, mask in parts])
        packed = module.project_heads(module.pq_proj, given["packed"][:, :1])
        pack = pack_weights(packed, module.project_heads(module.pc_proj, words), module.activation)[0] * real[:, None]
        count = real.cumsum(0).clamp(min=1)[-unpack.shape[1] :, None]
        through = (unpack @ pack.mT).tril(len(words) - unpack.shape[1]) / count
        return {"pack": pack.mT, "unpack": unpack, "through": through}

    return after_forward(module, weights_of)


def fastformer(module: Any) -> Any:
    """Fastformer's two softmaxes over time: a row for each step if causal, else one.

    The modules compute only weighted means; the weights are computed here from their scores (docs/mathematics.md).
    """
    causal = module.causal

    def weights_of(output: Any, given: dict[str, Any]) -> Weights:
        mask = mask_in(given, "padding_mask")
        x = convolved(module, next(iter(given.values())), mask, causal=causal)[:, :1]
        real = torch.ones(1, len(x), dtype=torch.bool) if mask is None else ~mask[:1]
        if causal:
            real = real & torch.ones(len(x), len(x), dtype=torch.bool).tril()

        def shares(score: Tensor) -> Tensor:
            return score[:, :, None].masked_fill(~real, -torch.inf).softmax(-1).nan_to_num(0.0)

        maps = module.learned_maps()
        q, k, _ = module.queries_keys_values(x)
        query = shares(scaled_score(maps.query_score(q), q))
        p = maps.combine_key(query @ q, k)
        return {"query": query[0], "key": shares(scaled_score(maps.key_score(p), p))[0]}

    return after_forward(module, weights_of)


def mask_in(given: dict[str, Any], name: str) -> Tensor | None:
    """The mask ``(B, T)`` in the argument ``name``, which may be a :class:`.Padding`."""
    return Padding.of(given.get(name)).mask


def convolved(module: Any, x: Tensor, padding_mask: Tensor | None, *, causal: bool) -> Tensor:
    """``x (T, B, C)`` after the convolution of ``module``, if it has one; ``padding_mask (B, T)``, True = padding."""
    if module.convolution is None:
        return x
    if causal:
        return module.convolution.causal(x, padding=padding_mask)[0]
    return module.convolution.centered(x, padding=padding_mask)
