"""Block attention: attention inside blocks of a sentence, and between the blocks."""

from fairseq.models import register_model

from ..modules.declaration import declared_attentions
from .shared.architectures import SIZES, register_architectures
from .shared.attentions import options_of
from .shared.config import convolution, flat_config, option
from .shared.model import SelfAttentionModel

ATTENTION = declared_attentions()["block"]
OPTIONS = {
    **options_of(ATTENTION.flags),
    **convolution(older_name="block_kernel_size"),
    "share_block_layers": option(bool, False, "share the self-attention's parameters between layers of a side"),
}

BlockConfig = flat_config(__name__, "BlockConfig", OPTIONS)


@register_model("block", dataclass=BlockConfig)
class BlockModel(SelfAttentionModel):
    """Block attention in encoder and decoder."""

    config = BlockConfig
    attention = ATTENTION
    share_layers = "share_block_layers"


register_architectures("block", {f"block_{name}": settings for name, settings in SIZES.items()})
