"""fairseq's RoBERTa with other attentions: for masked language models, classification and ranking."""

from .model import LunaRobertaModel, MixedRobertaModel

__all__ = ["LunaRobertaModel", "MixedRobertaModel"]
