"""The attentions that ``--arch mixed*`` chooses by name, from their declarations in :mod:`fairseq_luna.modules`."""

from functools import partial
from typing import Any

from torch import nn

from ...modules.declaration import Attention, declared_attentions
from ...modules.linformer_attention import LinformerProjections
from ...usage_error import UsageError
from ..shared.attention_building import BuildAttention, Sharing, build_attention
from ..shared.flag_checks import flag

# The places of a model that have an attention, and the field of the config that names it.
PLACES = {
    "encoder": "encoder_self_attention",
    "decoder": "decoder_self_attention",
    "source": "source_attention",
}

ATTENTIONS: dict[str, Attention] = {name: each for name, each in declared_attentions().items() if each.places}


def fields_for(name: str) -> dict[str, str]:
    """The fields of the config with which the attention ``name`` stands wherever it can."""
    return {PLACES[place]: name for place in ATTENTIONS[name].places}


def available_in(place: str) -> dict[str, Attention]:
    """The attentions that can stand in ``place``, by name."""
    return {name: attention for name, attention in ATTENTIONS.items() if place in attention.places}


def chosen_attention(cfg: Any, place: str) -> Attention:
    """The attention that the nested ``cfg`` names for ``place``.

    Raises:
        UsageError: it cannot stand there, or there is none; names those that can.
    """
    field = PLACES[place]
    name = getattr(cfg, field)
    # fairseq's parser knows the names, a config made in Python does not.
    attention = declared_attentions().get(name)
    refusal = attention.refusal(place) if attention else "there is no such attention"
    if attention is None or refusal:
        choices = ", ".join(available_in(place))
        raise UsageError(f"{flag(field)} {name}: {refusal}; choose one of: {choices}")
    return attention


def build_chosen_attention(cfg: Any, place: str) -> nn.Module:
    """The attention of one layer, which the nested ``cfg`` names for ``place``."""
    return build_attention(chosen_attention(cfg, place), cfg, place)


def build_for_stack(place: str) -> BuildAttention:
    """:func:`build_chosen_attention` for the layers of a stack, which may share Linformer's sums."""
    return Sharing(partial(build_chosen_attention, place=place), shared_sums)


def shared_sums(attention: nn.Module) -> list[str]:
    """The names of the sums that all layers share."""
    return [
        f"{name}.key_sums".lstrip(".")
        for name, module in attention.named_modules()
        if isinstance(module, LinformerProjections) and module.share == "layers"
    ]
