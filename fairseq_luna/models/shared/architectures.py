"""Named architectures: each sets what differs from its model's defaults, and a given value overrides it."""

from argparse import Namespace
from collections.abc import Mapping
from functools import partial
from typing import Any

from fairseq.models import ARCH_MODEL_NAME_REGISTRY, MODEL_DATACLASS_REGISTRY, register_model_architecture
from hydra.core.config_store import ConfigStore

from .config import with_other_defaults

Settings = dict[str, Any]

# The sizes of every family, named as in fairseq's transformer. Base is the default: 6+6 layers, 512/2048, 8 heads.
SIZES: dict[str, Settings] = {
    "base": {},
    "big": {
        "encoder_embed_dim": 1024,
        "encoder_ffn_embed_dim": 4096,
        "encoder_attention_heads": 16,
        "decoder_attention_heads": 16,
        "dropout": 0.3,
    },
    "iwslt_de_en": {
        "encoder_ffn_embed_dim": 1024,
        "encoder_attention_heads": 4,
        "decoder_attention_heads": 4,
    },
    "tiny": {
        "encoder_embed_dim": 128,
        "encoder_ffn_embed_dim": 256,
        "encoder_layers": 4,
        "decoder_layers": 4,
        "encoder_attention_heads": 4,
        "decoder_attention_heads": 4,
    },
}


def register_architectures(model: str, architectures: Mapping[str, Settings]) -> None:
    """Register each name in ``architectures`` as the registered ``model`` with these settings.

    For the command line fairseq takes a function that sets what no flag gives. A config of hydra or of a checkpoint it
    first fills with the defaults of a dataclass, so that the function would find nothing unset: each name has its own.
    """
    for name, settings in architectures.items():
        register_model_architecture(model, name)(partial(set_missing, settings))
        config_name = name.title().replace("_", "") + "Config"
        config = with_other_defaults(MODEL_DATACLASS_REGISTRY[model], config_name, settings)
        ARCH_MODEL_NAME_REGISTRY[name] = name  # by which fairseq finds the dataclass
        MODEL_DATACLASS_REGISTRY[name] = config
        ConfigStore.instance().store(name=name, group="model", node=config(_name=name), provider="fairseq")


def set_missing(settings: Settings, args: Namespace) -> None:
    """Set those of ``settings`` that the command line does not give."""
    for name, value in settings.items():
        if not hasattr(args, name):
            setattr(args, name, value)
