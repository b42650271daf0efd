"""Named architectures: each is a config that sets what differs from its family's, and a given value overrides it."""

import inspect
from argparse import Namespace
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from fairseq.models import ARCH_MODEL_NAME_REGISTRY, MODEL_DATACLASS_REGISTRY, register_model_architecture
from hydra.core.config_store import ConfigStore

from .config import OptionalInt

# The sizes of every family, named as in fairseq's transformer. A named architecture inherits from one of them and from
# its family's config, in this order. Base is what a config has by default: 6+6 layers, 512/2048, 8 heads.


@dataclass
class Big:
    """6+6 layers, 1024/4096, 16 heads."""

    encoder_embed_dim: OptionalInt = 1024
    encoder_ffn_embed_dim: int = 4096
    encoder_attention_heads: int = 16
    decoder_attention_heads: int = 16
    dropout: float = 0.3


@dataclass
class IwsltDeEn:
    """6+6 layers, 512/1024, 4 heads."""

    encoder_ffn_embed_dim: int = 1024
    encoder_attention_heads: int = 4
    decoder_attention_heads: int = 4


@dataclass
class TinyEncoder:
    """4 layers, 128/256, 4 heads."""

    encoder_embed_dim: OptionalInt = 128
    encoder_ffn_embed_dim: int = 256
    encoder_layers: int = 4
    encoder_attention_heads: int = 4


@dataclass
class Tiny(TinyEncoder):
    """4+4 layers, 128/256, 4 heads."""

    decoder_layers: int = 4
    decoder_attention_heads: int = 4


def register_architectures(family: str, architectures: Mapping[str, Any]) -> None:
    """Register configs by name as architectures of the registered model ``family``.

    For the command line fairseq takes a function that sets what no flag gives. A config of hydra or of a checkpoint it
    first fills with the defaults of the dataclass that is registered for the name.

    Args:
        family: the name of the model.
        architectures: by name, subclasses of the family's config.
    """
    for name, config in architectures.items():
        settings = preset(config, MODEL_DATACLASS_REGISTRY[family])
        register_model_architecture(family, name)(partial(set_missing, settings))
        ARCH_MODEL_NAME_REGISTRY[name] = name  # by which fairseq finds the dataclass
        MODEL_DATACLASS_REGISTRY[name] = config
        ConfigStore.instance().store(name=name, group="model", node=config(_name=name), provider="fairseq")


def preset(config: Any, family: type) -> dict[str, Any]:
    """The values of the fields that ``config`` declares in addition to its base ``family``, even if they are equal."""
    added = [base for base in config.__mro__ if not issubclass(family, base)]
    return {name: getattr(config, name) for base in reversed(added) for name in inspect.get_annotations(base)}


def set_missing(settings: Mapping[str, Any], args: Namespace) -> None:
    """Set the ``settings`` that the command line does not give."""
    for name, value in settings.items():
        if not hasattr(args, name):
            setattr(args, name, value)
