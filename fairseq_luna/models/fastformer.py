"""Fastformer: additive attention through one global query and one global key (arXiv 2108.09084)."""

from fairseq.models import register_model

from ..modules.declaration import declared_attentions
from .shared.architectures import SIZES, register_architectures
from .shared.attentions import options_of
from .shared.config import convolution, flat_config, option
from .shared.model import SelfAttentionModel

ATTENTION = declared_attentions()["fastformer"]
OPTIONS = {
    **options_of(ATTENTION.flags),
    **convolution(older_name="fastformer_kernel_size"),
    "fastformer_share_layers": option(bool, False, "share the self-attention's parameters between layers of a side"),
}

FastformerConfig = flat_config(__name__, "FastformerConfig", OPTIONS)


@register_model("fastformer", dataclass=FastformerConfig)
class FastformerModel(SelfAttentionModel):
    """Fastformer in encoder and decoder."""

    config = FastformerConfig
    attention = ATTENTION
    share_layers = "fastformer_share_layers"


register_architectures("fastformer", {f"fastformer_{name}": settings for name, settings in SIZES.items()})
