"""The attention maps of a sentence pair: the weights of a model's modules, with the words they belong to."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from fairseq.modules import MultiheadAttention
from torch import Tensor, nn

from fairseq_luna.commands.command_line import CommandError
from fairseq_luna.modules import (
    FastformerAttention,
    FastformerCausalAttention,
    LunaAttention,
    LunaCausalAttention,
    SoftmaxSourceAttention,
)
from fairseq_luna.modules.convolved_attention import ConvolvedAttention
from plots import fastformer_maps, luna_maps
from plots.attention_map import SIDES, AttentionMap, Axis, Pair, slots
from plots.luna_maps import SOFTMAX, LunaWeights

# Called with a module; a context manager whose value is the list of the weights that the module then computes.
Recorder = Callable[[Any], Any]

_CAUSAL_PACK = "positive, not normalised"
_CAUSAL_THROUGH = "weights of the values, not normalised"
_AVERAGED = "unpack times pack, averaged over the pack heads"


def attention_maps(model: Any, pair: Pair, sides: Sequence[str] = (), layers: Sequence[int] = ()) -> list[AttentionMap]:
    """Run ``model`` on ``pair`` once and return the weights of its attentions.

    Args:
        model: a fairseq encoder-decoder in evaluation mode.
        pair: one sentence and its translation.
        sides: of :data:`plots.attention_map.SIDES`; empty: all that can be drawn.
        layers: from 0; empty: the last.

    Raises:
        CommandError: there is no such layer, or a chosen attention cannot be drawn.
    """
    chosen = sides or [side for side in SIDES if _recorder(side, _module(model, side, -1))]
    if not chosen:
        raise CommandError("none of this model's attentions can be drawn: give a checkpoint of Luna or Fastformer")
    with ExitStack() as stack, torch.no_grad():
        found = []
        for side in chosen:
            for layer in layers or [_depth(model, side) - 1]:
                module = _checked(model, side, layer)
                found.append((side, layer, module, stack.enter_context(_recorder(side, module)(module))))
        out = model.encoder(pair.source, torch.tensor([pair.source.shape[1]]))
        model.decoder(pair.prefix, encoder_out=out)
    return [made for side, layer, module, seen in found for made in _named(pair, side, layer, module, seen[-1])]


def _recorder(side: str, module: nn.Module | None) -> Recorder | None:
    """The recorder of ``module``; None if its weights cannot be recorded."""
    if isinstance(module, LunaAttention):
        return luna_maps.recorded
    if isinstance(module, LunaCausalAttention):
        return luna_maps.recorded_causal
    if isinstance(module, FastformerAttention | FastformerCausalAttention):
        return fastformer_maps.recorded
    if isinstance(module, MultiheadAttention | SoftmaxSourceAttention) and side == "cross":
        return _recorded_by_module
    return None


@contextmanager
def _recorded_by_module(module: MultiheadAttention | SoftmaxSourceAttention) -> Iterator[list[Tensor]]:
    """Record the weights ``(H, T, S)`` of the first sentence of each forward pass of ``module``.

    Only for attention to the source: in self-attention fairseq may use a fast path that averages the heads.
    """
    seen: list[Tensor] = []

    asked = {"need_weights": True}
    if isinstance(module, MultiheadAttention):  # of fairseq's transformer
        asked["need_head_weights"] = True

    def before_forward(module: nn.Module, args: tuple, kwargs: dict) -> tuple[tuple, dict]:
        return args, {**kwargs, **asked}

    def after_forward(module: nn.Module, args: tuple, output: tuple[Tensor, Tensor]) -> None:
        seen.append(output[1][:, 0])

    handles = [
        module.register_forward_pre_hook(before_forward, with_kwargs=True),
        module.register_forward_hook(after_forward),
    ]
    try:
        yield seen
    finally:
        for handle in handles:
            handle.remove()


def _layers(model: Any, side: str) -> Any:
    return model.encoder.layers if side == "encoder" else model.decoder.layers


def _depth(model: Any, side: str) -> int:
    return len(_layers(model, side))


def _module(model: Any, side: str, layer: int) -> nn.Module | None:
    module = getattr(list(_layers(model, side))[layer], "encoder_attn" if side == "cross" else "self_attn", None)
    return module.attention if isinstance(module, ConvolvedAttention) else module


def _checked(model: Any, side: str, layer: int) -> nn.Module:
    """The module of an attention. Raises CommandError if it does not exist or cannot be drawn."""
    if not 0 <= layer < _depth(model, side):
        half = "encoder" if side == "encoder" else "decoder"
        raise CommandError(f"--layers {layer}: the {half} has {_depth(model, side)}, counted from 0")
    module = _module(model, side, layer)
    if module is None:
        raise CommandError(f"--attention {side}: this model has none; leave it out")
    if _recorder(side, module) is None:
        raise CommandError(
            f"--attention {side}: {type(module).__name__} cannot be drawn, only Luna's and Fastformer's attention "
            "and, for cross, fairseq's own"
        )
    return module


def _named(pair: Pair, side: str, layer: int, module: nn.Module, weights: Any) -> Iterator[AttentionMap]:
    def made(kind: str, weights: Tensor, rows: Axis, columns: Axis, note: str = SOFTMAX) -> AttentionMap:
        return AttentionMap(side, layer, kind, weights, rows, columns, note)

    rows, columns = {
        "encoder": (pair.read, pair.read),
        "cross": (pair.predicted, pair.read),
        "decoder": (pair.written, pair.written),
    }[side]
    if isinstance(weights, LunaWeights):
        pack, unpack, through = weights
        causal = isinstance(module, LunaCausalAttention)
        if through.shape[2] > len(columns.labels):  # --cross-self-attention: the source comes first
            columns = Axis("source and target words read", pair.source_words + pair.prefix_words)
        slot = slots(pack.shape[1])
        yield made("pack", pack, slot, columns, _CAUSAL_PACK if causal else SOFTMAX)
        yield made("unpack", unpack, rows, slot)
        yield made("through", through, rows, columns, _CAUSAL_THROUGH if causal else f"{_AVERAGED}; {SOFTMAX}")
    elif isinstance(weights, fastformer_maps.FastformerWeights):
        rows = rows if side == "decoder" else Axis("", ["all"])
        yield made("query", weights.query, rows, columns)
        yield made("key", weights.key, rows, columns)
    else:
        yield made("weights", weights, rows, columns)
