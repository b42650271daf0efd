"""Block attention: attention inside blocks of a sentence, and between the blocks."""
# fairseq makes the type of an option with choices by a call:
# mypy: disable-error-code="valid-type"

from dataclasses import dataclass, field

from fairseq.dataclass import ChoiceEnum
from fairseq.models import register_model

from ..modules import BlockAttention, BlockCausalAttention
from .shared.architectures import Big, IwsltDeEn, Tiny, register_architectures
from .shared.attentions import KERNEL, Factory
from .shared.config import OLDER_NAME, ConvolutionOptions, FlatTransformerConfig, OptionalInt, declared_options
from .shared.model import SelfAttentionModel

UnorderedBlocks = ChoiceEnum(["none", "mean", "sum"])


@dataclass
class BlockConfig(ConvolutionOptions, FlatTransformerConfig):
    """The flat config of ``block``."""

    num_blocks: int = field(
        default=0, metadata={"help": "number of blocks of a source sentence; 0: the optimum, (n^2 / 2)^(1/3)"}
    )
    random_blocks: bool = field(
        default=False, metadata={"help": "in training, draw random block sizes in each layer at each step"}
    )
    share_block_levels: bool = field(
        default=False,
        metadata={"help": "share projections between the attentions inside and between blocks"},
    )
    share_block_layers: bool = field(
        default=False, metadata={"help": "share the self-attention's parameters between layers of a side"}
    )
    unordered_blocks: UnorderedBlocks = field(
        default="none",
        metadata={"help": "replace attention inside a block by the mean or sum of its values"},
    )
    block_kernel_size: OptionalInt = field(default=None, metadata=OLDER_NAME)
    decoder_block_size: int = field(default=8, metadata={"help": "number of tokens in a block of the decoder"})


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


OPTIONS = declared_options(BlockConfig, without=FlatTransformerConfig)

# Flags of the attentions, and the constructor arguments that they become.
FLAGS = {"share_block_levels": "share_levels", "unordered_blocks": "unordered"}
ENCODER_FLAGS = {"num_blocks": "num_blocks", "random_blocks": "random_blocks", **FLAGS}
DECODER_FLAGS = {"decoder_block_size": "block_size", **FLAGS}


@register_model("block", dataclass=BlockConfig)
class BlockModel(SelfAttentionModel):
    """Block attention in encoder and decoder."""

    config = BlockConfig
    encoder_attention = Factory(BlockAttention, ENCODER_FLAGS | KERNEL)
    decoder_attention = Factory(BlockCausalAttention, DECODER_FLAGS | KERNEL)
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
