"""The attention maps of a sentence pair: the weights of a model's modules, with the words they belong to."""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from typing import Any, NamedTuple

import torch
from fairseq.modules import MultiheadAttention
from torch import Tensor, nn

from fairseq_luna.command_line import CommandError
from fairseq_luna.modules import (
    FastformerAttention,
    LunaAttention,
    LunaCausalAttention,
    SoftmaxCrossAttention,
)
from plots import recorders

SIDES = ("encoder", "cross", "decoder")


class Axis(NamedTuple):
    """The rows or the columns of a map."""

    name: str
    labels: list[str]


class Pair(NamedTuple):
    """One sentence pair as a batch of one."""

    source: Tensor  # (1, S), ending in EOS
    prefix: Tensor  # (1, T), beginning with EOS: the decoder's input
    source_words: list[str]
    prefix_words: list[str]


class AttentionMap(NamedTuple):
    """The weights of every head of one attention."""

    side: str  # of SIDES
    layer: int  # counted from 0
    kind: str  # "pack", "unpack" or "through" of Luna; "query" or "key" of Fastformer; "weights" of softmax attention
    weights: Tensor  # (H, rows, columns)
    rows: Axis
    columns: Axis


def attention_maps(model: Any, pair: Pair, sides: Sequence[str] = (), layers: Sequence[int] = ()) -> list[AttentionMap]:
    """Run ``model`` on ``pair`` once and return the weights of its attentions.

    Args:
        model: a fairseq encoder-decoder in evaluation mode.
        sides: of SIDES; empty: all that can be drawn.
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
            for layer in layers or [len(_layers(model, side)) - 1]:
                module = _checked(model, side, layer)
                seen = stack.enter_context(_recorder(side, module)(module))
                found.append((side, layer, seen))
        out = model.encoder(pair.source, torch.tensor([pair.source.shape[1]]))
        model.decoder(pair.prefix, encoder_out=out)
    return [made for *place, seen in found for made in _named(pair, *place, seen[-1])]


def _recorder(side: str, module: nn.Module | None) -> Any:
    """The recorder of ``module``; None if its weights cannot be recorded."""
    if isinstance(module, LunaAttention):
        return recorders.luna
    if isinstance(module, LunaCausalAttention):
        return recorders.luna_causal
    if isinstance(module, FastformerAttention):
        return recorders.fastformer
    if isinstance(module, MultiheadAttention | SoftmaxCrossAttention) and side == "cross":
        return recorders.softmax
    return None


def _layers(model: Any, side: str) -> Any:
    return model.encoder.layers if side == "encoder" else model.decoder.layers


def _module(model: Any, side: str, layer: int) -> nn.Module | None:
    return getattr(_layers(model, side)[layer], "encoder_attn" if side == "cross" else "self_attn", None)


def _checked(model: Any, side: str, layer: int) -> nn.Module:
    """The module of an attention. Raises CommandError if it does not exist or cannot be drawn."""
    if not 0 <= layer < len(_layers(model, side)):
        raise CommandError(f"--layers {layer}: {side} has {len(_layers(model, side))}, counted from 0")
    module = _module(model, side, layer)
    if module is None:
        raise CommandError(f"--attention {side}: this model has none; leave it out")
    if _recorder(side, module) is None:
        raise CommandError(
            f"--attention {side}: {type(module).__name__} cannot be drawn, only Luna's and Fastformer's attention "
            "and, for cross, softmax attention"
        )
    return module


def _named(pair: Pair, side: str, layer: int, seen: dict[str, Tensor]) -> Iterator[AttentionMap]:
    """The maps of one attention."""
    read, written = Axis("source words", pair.source_words), Axis("target words read", pair.prefix_words)
    predicted = Axis("target word predicted", pair.prefix_words[1:] + pair.prefix_words[:1])
    rows, columns = {"encoder": (read, read), "cross": (predicted, read), "decoder": (written, written)}[side]
    for kind, weights in seen.items():
        down, across = rows, columns
        if kind == "pack":
            down = Axis("slot", [str(slot) for slot in range(weights.shape[1])])
        elif kind in ("query", "key") and side == "encoder":
            down = Axis("", ["all"])
        if kind == "unpack":
            across = Axis("slot", [str(slot) for slot in range(weights.shape[2])])
        elif weights.shape[2] > len(across.labels):  # --cross-self-attention: the source comes first
            across = Axis("source and target words read", pair.source_words + pair.prefix_words)
        yield AttentionMap(side, layer, kind, weights, down, across)
