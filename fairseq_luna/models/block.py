"""Block attention: attention inside blocks of a sentence, and between the blocks."""

from fairseq.dataclass import ChoiceEnum
from fairseq.models import register_model

from ..modules import BlockAttention, BlockCausalAttention
from .shared.architectures import SIZES, register_architectures
from .shared.attentions import KERNEL, Factory
from .shared.config import convolution, flat_config, option
from .shared.model import SelfAttentionModel

OPTIONS = {
    "num_blocks": option(int, 0, "number of blocks of a source sentence; 0: the optimum, (n^2 / 2)^(1/3)"),
    "random_blocks": option(bool, False, "in training, draw random block sizes in each layer at each step"),
    "share_block_levels": option(bool, False, "share projections between the attentions inside and between blocks"),
    "share_block_layers": option(bool, False, "share the self-attention's parameters between layers of a side"),
    "unordered_blocks": option(
        ChoiceEnum(["none", "mean", "sum"]),
        "none",
        "replace attention inside a block by the mean or sum of its values",
    ),
    **convolution(older_name="block_kernel_size"),
    "decoder_block_size": option(int, 8, "number of tokens in a block of the decoder"),
}

# Flags of the attentions, and the constructor arguments that they become.
FLAGS = {"share_block_levels": "share_levels", "unordered_blocks": "unordered"}
ENCODER_FLAGS = {"num_blocks": "num_blocks", "random_blocks": "random_blocks", **FLAGS}
DECODER_FLAGS = {"decoder_block_size": "block_size", **FLAGS}

BlockConfig = flat_config(__name__, "BlockConfig", OPTIONS)


@register_model("block", dataclass=BlockConfig)
class BlockModel(SelfAttentionModel):
    """Block attention in encoder and decoder."""

    config = BlockConfig
    encoder_attention = Factory(BlockAttention, ENCODER_FLAGS | KERNEL)
    decoder_attention = Factory(BlockCausalAttention, DECODER_FLAGS | KERNEL)
    share_layers = "share_block_layers"


register_architectures("block", {f"block_{name}": settings for name, settings in SIZES.items()})
