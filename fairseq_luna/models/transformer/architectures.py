"""Named architectures: each sets what differs from its model's defaults, and the command line overrides it."""

from argparse import Namespace
from collections.abc import Callable, Mapping
from typing import Any

from fairseq.models import register_model_architecture

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
    """Register each name in ``architectures`` for ``--arch``, as the registered ``model`` with these settings."""
    for name, settings in architectures.items():
        register_model_architecture(model, name)(with_defaults(settings))


def with_defaults(settings: Settings) -> Callable[[Namespace], None]:
    """Return the function that fairseq calls to set ``settings`` that the command line does not give."""

    def set_defaults(args: Namespace) -> None:
        for name, value in settings.items():
            if not hasattr(args, name):
                setattr(args, name, value)

    return set_defaults
