"""Models and layers with one attention by name."""

from argparse import Namespace

import torch
from torch import nn

from fairseq_luna.models.mixed.chosen_attentions import ATTENTIONS, PLACES, build_chosen_attention
from fairseq_luna.models.mixed.config import mixed_config
from fairseq_luna.models.shared.flag_checks import flag


def flags_for(name: str) -> list[str]:
    """Flags of fairseq-train for the attention ``name`` in encoder and decoder, where it can stand there.

    Elsewhere, and from target to source, it is softmax attention.
    """
    places = [place for place in ATTENTIONS[name].places if place != "source"]
    return [f"{flag(PLACES[place])}={name}" for place in places]


def attention(name: str, place: str = "encoder", *, embed_dim: int, heads: int, longest: int) -> nn.Module:
    """The attention ``name`` of ``place``, with its defaults and random weights, always the same.

    Args:
        embed_dim: channels.
        heads: attention heads.
        longest: steps of the longest sequence.

    Raises:
        UsageError: a value that cannot work.
    """
    fields = {PLACES[place]: name, "max_source_positions": longest, "max_target_positions": longest}
    for side in ("encoder", "decoder"):
        fields |= {f"{side}_embed_dim": embed_dim, f"{side}_attention_heads": heads}
    torch.manual_seed(0)
    return build_chosen_attention(mixed_config(Namespace(**fields)), place)
