"""Named architectures: each sets only what differs from its model's defaults; the command line overrides it."""

from argparse import Namespace
from collections.abc import Callable, Mapping
from typing import Any

from fairseq.models import register_model_architecture

Settings = dict[str, Any]

# Sizes that every family has, by the names that fairseq's transformer has for them. Base is what the models' own
# defaults are: 6+6 layers, 512/2048, 8 heads.
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
    """Register each name of ``architectures`` for ``--arch``, as ``model`` with its settings."""
    for name, settings in architectures.items():
        register_model_architecture(model, name)(filling_in(settings))


def filling_in(settings: Settings) -> Callable[[Namespace], None]:
    """What fairseq calls to set ``settings`` where the command line is silent."""

    def fill_in(args: Namespace) -> None:
        for name, value in settings.items():
            if not hasattr(args, name):
                setattr(args, name, value)

    return fill_in
