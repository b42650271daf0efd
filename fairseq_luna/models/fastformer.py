"""Fastformer: additive attention through one global query and one global key (arXiv 2108.09084)."""

from typing import Any

from fairseq.dataclass import ChoiceEnum
from fairseq.models import register_model
from torch import nn

from ..modules import FastformerAttention, FastformerCausalAttention
from .shared.architectures import SIZES, register_architectures
from .shared.checks import REFUSED_OUTSIDE_LUNA
from .shared.config import checked_config, flat_config, option
from .shared.layers import attention_options, with_flags
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
    "fastformer_kernel_size": option(
        int, 0, "kernel size of a convolution before the self-attention, an odd number; 0: no convolution"
    ),
    "fastformer_share_layers": option(bool, False, "share the self-attention's parameters between layers of a side"),
}

# Flags of the attention, and the constructor arguments that they become.
FLAGS = {"fastformer_combine": "combine", "fastformer_residual": "residual", "fastformer_share": "share"}
KERNEL = {"fastformer_kernel_size": "kernel_size"}

FastformerConfig = flat_config(__name__, "FastformerConfig", OPTIONS)


@register_model("fastformer", dataclass=FastformerConfig)
class FastformerModel(SelfAttentionModel):
    """Fastformer in encoder and decoder."""

    share_layers = "fastformer_share_layers"

    @classmethod
    def nested_config(cls, cfg: Any) -> Any:
        return checked_config(FastformerConfig, cfg, refused=REFUSED_OUTSIDE_LUNA)

    @staticmethod
    def encoder_self_attention(cfg: Any) -> nn.Module:
        return with_flags(FastformerAttention, cfg, FLAGS | KERNEL, **attention_options(cfg, cfg.encoder))

    @staticmethod
    def decoder_self_attention(cfg: Any) -> nn.Module:
        return with_flags(FastformerCausalAttention, cfg, FLAGS | KERNEL, **attention_options(cfg, cfg.decoder))


register_architectures("fastformer", {f"fastformer_{name}": settings for name, settings in SIZES.items()})
