"""The flags of models whose attentions are chosen by name, with their checks."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from fairseq.dataclass import ChoiceEnum

from ...modules.declaration import merged_flags
from ...usage_error import UsageError
from ..shared.architectures import Big, IwsltDeEn, Tiny
from ..shared.attention_building import options_of
from ..shared.config import checked_config, convolution, flat_config, option
from ..shared.flag_checks import REFUSED_OUTSIDE_LUNA, flag
from .chosen_attentions import ATTENTIONS, PLACES, available_in, chosen_attention

NAMES = ChoiceEnum(list(ATTENTIONS))
WHERE_DIFFERENCES_ARE = "; fairseq-luna info --attention NAME says how it differs from the published layer"
CHOICES = {
    "encoder_self_attention": option(NAMES, "softmax", f"self-attention of the encoder{WHERE_DIFFERENCES_ARE}"),
    "decoder_self_attention": option(NAMES, "softmax", f"self-attention of the decoder{WHERE_DIFFERENCES_ARE}"),
    "source_attention": option(NAMES, "softmax", f"cross-attention of the decoder{WHERE_DIFFERENCES_ARE}"),
    **convolution(),
}


def options_read(places: Iterable[str]) -> dict[str, tuple[Any, Any]]:
    """The options that some attention reads which can stand in one of ``places``."""
    choices = ((place, attention) for place in places for attention in available_in(place).values())
    read = {field for place, attention in choices for field in attention.arguments(place)}
    return options_of(each for name, each in merged_flags(ATTENTIONS.values()).items() if name in read)


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
    read = {field for place in places for field in chosen_attention(nested, place).arguments(place)}
    for field, (_, spec) in options.items():
        value = getattr(nested, field)
        if field not in read and value != spec.default:
            shown = "" if value is True else f" {value}"
            readers = ", ".join(readers_of(field))
            raise UsageError(f"{flag(field)}{shown}: is for {readers}; choose that or leave the flag out")


def readers_of(field: str) -> Iterator[str]:
    """The attentions that read ``field``, with their places, such as ``block (encoder)``."""
    for name, attention in ATTENTIONS.items():
        places = [place for place in attention.places if field in attention.arguments(place)]
        if places:
            yield f"{name} ({', '.join(places)})"
