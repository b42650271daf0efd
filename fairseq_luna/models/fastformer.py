"""Fastformer: additive attention through one global query and one global key (arXiv 2108.09084)."""

from dataclasses import dataclass, field
from typing import Any

from fairseq.models import register_model

from ..modules.declaration import declared_attentions
from .shared.architectures import Big, IwsltDeEn, Tiny, register_architectures
from .shared.attention_building import options_of
from .shared.config import OLDER_NAME, ConvolutionOptions, FlatTransformerConfig, OptionalInt, config_of
from .shared.model import SelfAttentionModel

ATTENTION = declared_attentions()["fastformer"]
_DeclaredOptions: Any = config_of(__name__, "_DeclaredOptions", options_of(ATTENTION.flags))


@dataclass
class FastformerConfig(_DeclaredOptions, ConvolutionOptions, FlatTransformerConfig):
    """The flat config of ``fastformer``: the flags that the attention declares, and the family's own."""

    fastformer_kernel_size: OptionalInt = field(default=None, metadata=OLDER_NAME)
    fastformer_share_layers: bool = field(
        default=False, metadata={"help": "share the self-attention's parameters between layers of a side"}
    )


@dataclass
class FastformerBaseConfig(FastformerConfig):
    """6+6 layers, 512/2048, 8 heads."""


@dataclass
class FastformerBigConfig(Big, FastformerConfig):
    """6+6 layers, 1024/4096, 16 heads."""


@dataclass
class FastformerIwsltDeEnConfig(IwsltDeEn, FastformerConfig):
    """6+6 layers, 512/1024, 4 heads."""


@dataclass
class FastformerTinyConfig(Tiny, FastformerConfig):
    """4+4 layers, 128/256, 4 heads."""


@register_model("fastformer", dataclass=FastformerConfig)
class FastformerModel(SelfAttentionModel):
    """Fastformer in encoder and decoder."""

    config = FastformerConfig
    attention = ATTENTION
    share_layers = "fastformer_share_layers"


register_architectures(
    "fastformer",
    {
        "fastformer_base": FastformerBaseConfig,
        "fastformer_big": FastformerBigConfig,
        "fastformer_iwslt_de_en": FastformerIwsltDeEnConfig,
        "fastformer_tiny": FastformerTinyConfig,
    },
)
