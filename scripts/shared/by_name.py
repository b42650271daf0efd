"""Models and layers with one attention by name."""

from argparse import Namespace

import torch
from torch import nn

from fairseq_luna.models.mixed.attentions import ATTENTIONS, PLACES, build_attention
from fairseq_luna.models.mixed.config import mixed_config
from fairseq_luna.models.transformer.checks import flag


def flags_for(name: str) -> list[str]:
    """Flags of fairseq-train for the attention ``name`` in encoder and decoder, where it can stand there.

    Elsewhere, and from target to source, it is softmax attention.
    """
    places = [place for place in ATTENTIONS[name].factories() if place != "source"]
    return [f"{flag(PLACES[place])}={name}" for place in places]


def encoder_attention(name: str, *, embed_dim: int, heads: int, longest: int) -> nn.Module:
    """The self-attention ``name`` of an encoder, with its defaults and random weights, always the same.

    Args:
        embed_dim: channels.
        heads: attention heads.
        longest: steps of the longest sequence.

    Raises:
        UsageError: a value that cannot work.
    """
    fields = {
        "encoder_self_attention": name,
        "encoder_embed_dim": embed_dim,
        "encoder_attention_heads": heads,
        "max_source_positions": longest,
    }
    torch.manual_seed(0)
    return build_attention(mixed_config(Namespace(**fields)), "encoder")
