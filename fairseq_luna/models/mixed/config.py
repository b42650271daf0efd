"""The flags of models whose attentions are chosen by name, with their checks."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from fairseq.dataclass import ChoiceEnum

from ...usage_error import UsageError
from .. import block, fastformer
from ..shared.architectures import Big, IwsltDeEn, Tiny
from ..shared.checks import REFUSED_OUTSIDE_LUNA, flag
from ..shared.config import OptionalInt, checked_config, convolution, flat_config, option
from .attentions import ATTENTIONS, PLACES, able, factory_of

NAMES = ChoiceEnum(list(ATTENTIONS))
CHOICES = {
    "encoder_self_attention": option(NAMES, "softmax", "attention of source words to source words"),
    "decoder_self_attention": option(NAMES, "softmax", "attention of target words to earlier target words"),
    "source_attention": option(NAMES, "softmax", "attention of target words to source words"),
    **convolution(),
}
# Flags that several attentions read.
SHARED = {
    "num_features": option(
        OptionalInt,
        None,
        "random features of a head (default: performer 4 times its channels, rfa and gated-rfa 64, as published); the"
        " least sum of gated-rfa's weights is in proportion to them, where the authors have 0.1 for any number",
    ),
    "redraw_features": option(
        int,
        1000,
        "updates between two random draws of performer and of reformer (whose authors draw at every call); 0: never",
    ),
    "attention_window": option(
        OptionalInt,
        None,
        "steps that local, longformer and adaptive-span see on each side (default: 16, 512, 512); longformer's paper"
        " has 512 in all",
    ),
    "span_ramp": option(int, 32, "steps behind the span of a head in which adaptive-span's weights fall to 0"),
    "span_penalty": option(
        float, 2e-6, "loss for each step of adaptive-span's mean span, added as a gradient; not with --fp16, --amp"
    ),
    "attention_dilation": option(int, 1, "distance of the steps that longformer sees"),
    "attention_chunk": option(
        OptionalInt, None, "steps of a block of sparse (default: 32), bigbird and reformer (64), flash (256)"
    ),
    "attention_topk": option(int, 8, "steps that topk keeps: those with the largest scores"),
    "num_hashes": option(int, 8, "rounds in which reformer hashes"),
    "num_slots": option(
        OptionalInt, None, "slots or landmarks of an attention (default: linformer 128, external and nystrom 64)"
    ),
    "state_size": option(
        int, 64, "rows of ssd's state for each channel (published: 64 and 128); ssd has twice the model's channels"
    ),
    "linformer_share": option(
        ChoiceEnum(["none", "kv", "layers"]),
        "none",
        "kv: linformer's sums of keys and of values share their weights; layers: all layers of a side do",
    ),
}


def options_read(places: Iterable[str]) -> dict[str, tuple[Any, Any]]:
    """The options that some attention reads which can stand in one of ``places``."""
    read = {field for place in places for factory in able(place).values() for field in factory.flags}
    return {name: spec for name, spec in {**fastformer.OPTIONS, **block.OPTIONS, **SHARED}.items() if name in read}


OPTIONS = options_read(PLACES)
MixedConfig: Any = flat_config(__name__, "MixedConfig", {**CHOICES, **OPTIONS})


@dataclass
class MixedBaseConfig(MixedConfig):
    """6+6 layers, 512/2048, 8 heads."""


@dataclass
class MixedBigConfig(Big, MixedConfig):
    """6+6 layers, 1024/4096, 16 heads."""


@dataclass
class MixedIwsltDeEnConfig(IwsltDeEn, MixedConfig):
    """6+6 layers, 512/1024, 4 heads."""


@dataclass
class MixedTinyConfig(Tiny, MixedConfig):
    """4+4 layers, 128/256, 4 heads."""


ARCHITECTURES = {
    "mixed_base": MixedBaseConfig,
    "mixed_big": MixedBigConfig,
    "mixed_iwslt_de_en": MixedIwsltDeEnConfig,
    "mixed_tiny": MixedTinyConfig,
}


def mixed_config(cfg: Any) -> Any:
    """Return the nested config of a flat one, checked.

    Args:
        cfg: a MixedConfig, or a namespace or DictConfig with its fields; missing fields get their defaults.

    Raises:
        UsageError: names the flag, its value and what to do.
    """
    nested = checked_config(MixedConfig, cfg, refused=REFUSED_OUTSIDE_LUNA)
    check_read(nested, OPTIONS, PLACES)
    return nested


def check_read(nested: Any, options: Mapping[str, tuple[Any, Any]], places: Iterable[str]) -> None:
    """Refuse a flag of ``options`` that is set, and that no attention of ``places`` reads: UsageError."""
    read = {field for place in places for field in factory_of(nested, place).flags}
    for field, (_, spec) in options.items():
        value = getattr(nested, field)
        if field not in read and value != spec.default:
            shown = "" if value is True else f" {value}"
            readers = ", ".join(readers_of(field))
            raise UsageError(f"{flag(field)}{shown}: is for {readers}; choose that or leave the flag out")


def readers_of(field: str) -> Iterator[str]:
    """The attentions that read ``field``, with their places, such as ``block (encoder)``."""
    for name, attention in ATTENTIONS.items():
        places = [place for place, factory in attention.factories().items() if field in factory.flags]
        if places:
            yield f"{name} ({', '.join(places)})"
