"""Encoder-decoders whose attentions are chosen by name."""

from .chosen_attentions import ATTENTIONS
from .model import MixedModel

__all__ = ["ATTENTIONS", "MixedModel"]
