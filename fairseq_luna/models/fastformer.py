"""Fastformer: additive attention through one global query and one global key (arXiv 2108.09084)."""

from fairseq.dataclass import ChoiceEnum
from fairseq.models import register_model

from ..modules import FastformerAttention, FastformerCausalAttention
from .shared.architectures import SIZES, register_architectures
from .shared.attentions import KERNEL, Factory
from .shared.config import convolution, flat_config, option
from .shared.model import SelfAttentionModel

OPTIONS = {
    "fastformer_combine": option(
        ChoiceEnum(["product", "sum", "concat"]), "product", "how a global vector and a position's vector are combined"
    ),
    "fastformer_residual": option(
        ChoiceEnum(["query", "global-query"]), "query", "what is added at the end: the position's or the global query"
    ),
    "fastformer_share": option(
        ChoiceEnum(["none", "query-value", "query-key-value"]), "query-value", "projections that share parameters"
    ),
    **convolution(older_name="fastformer_kernel_size"),
    "fastformer_share_layers": option(bool, False, "share the self-attention's parameters between layers of a side"),
}

# Flags of the attention, and the constructor arguments that they become.
FLAGS = {"fastformer_combine": "combine", "fastformer_residual": "residual", "fastformer_share": "share"}

FastformerConfig = flat_config(__name__, "FastformerConfig", OPTIONS)


@register_model("fastformer", dataclass=FastformerConfig)
class FastformerModel(SelfAttentionModel):
    """Fastformer in encoder and decoder."""

    config = FastformerConfig
    encoder_attention = Factory(FastformerAttention, FLAGS | KERNEL)
    decoder_attention = Factory(FastformerCausalAttention, FLAGS | KERNEL)
    share_layers = "fastformer_share_layers"


register_architectures("fastformer", {f"fastformer_{name}": settings for name, settings in SIZES.items()})
