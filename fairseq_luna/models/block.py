"""Block attention: attention inside blocks of a sentence, and between the blocks."""

from dataclasses import dataclass, field
from typing import Any

from fairseq.models import register_model

from ..modules.declaration import declared_attentions
from .shared.architectures import Big, IwsltDeEn, Tiny, register_architectures
from .shared.attention_building import options_of
from .shared.config import OLDER_NAME, ConvolutionOptions, FlatTransformerConfig, OptionalInt, config_of
from .shared.model import SelfAttentionModel

ATTENTION = declared_attentions()["block"]
_DeclaredOptions: Any = config_of(__name__, "_DeclaredOptions", options_of(ATTENTION.flags))


@dataclass
class BlockConfig(_DeclaredOptions, ConvolutionOptions, FlatTransformerConfig):
    """The flat config of ``block``: the flags that the attention declares, and the family's own."""

    block_kernel_size: OptionalInt = field(default=None, metadata=OLDER_NAME)
    share_block_layers: bool = field(
        default=False, metadata={"help": "share the self-attention's parameters between layers of a side"}
    )


@dataclass
class BlockBaseConfig(BlockConfig):
    """6+6 layers, 512/2048, 8 heads."""


@dataclass
class BlockBigConfig(Big, BlockConfig):
    """6+6 layers, 1024/4096, 16 heads."""


@dataclass
class BlockIwsltDeEnConfig(IwsltDeEn, BlockConfig):
    """6+6 layers, 512/1024, 4 heads."""


@dataclass
class BlockTinyConfig(Tiny, BlockConfig):
    """4+4 layers, 128/256, 4 heads."""


@register_model("block", dataclass=BlockConfig)
class BlockModel(SelfAttentionModel):
    """Block attention in encoder and decoder."""

    config = BlockConfig
    attention = ATTENTION
    share_layers = "share_block_layers"


register_architectures(
    "block",
    {
        "block_base": BlockBaseConfig,
        "block_big": BlockBigConfig,
        "block_iwslt_de_en": BlockIwsltDeEnConfig,
        "block_tiny": BlockTinyConfig,
    },
)
