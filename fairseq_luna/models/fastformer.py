"""Fastformer: additive attention through one global query and one global key (arXiv 2108.09084)."""
# fairseq makes the type of an option with choices by a call:
# mypy: disable-error-code="valid-type"

from dataclasses import dataclass, field

from fairseq.dataclass import ChoiceEnum
from fairseq.models import register_model

from ..modules import FastformerAttention, FastformerCausalAttention
from .shared.architectures import Big, IwsltDeEn, Tiny, register_architectures
from .shared.attentions import KERNEL, Factory
from .shared.config import OLDER_NAME, ConvolutionOptions, FlatTransformerConfig, OptionalInt, declared_options
from .shared.model import SelfAttentionModel

Combine = ChoiceEnum(["product", "sum", "concat"])
Residual = ChoiceEnum(["query", "global-query"])
Share = ChoiceEnum(["none", "query-value", "query-key-value"])


@dataclass
class FastformerConfig(ConvolutionOptions, FlatTransformerConfig):
    """The flat config of ``fastformer``."""

    fastformer_combine: Combine = field(
        default="product", metadata={"help": "how a global vector and a position's vector are combined"}
    )
    fastformer_residual: Residual = field(
        default="query", metadata={"help": "what is added at the end: the position's or the global query"}
    )
    fastformer_share: Share = field(default="query-value", metadata={"help": "projections that share parameters"})
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


OPTIONS = declared_options(FastformerConfig, without=FlatTransformerConfig)

# Flags of the attention, and the constructor arguments that they become.
FLAGS = {"fastformer_combine": "combine", "fastformer_residual": "residual", "fastformer_share": "share"}


@register_model("fastformer", dataclass=FastformerConfig)
class FastformerModel(SelfAttentionModel):
    """Fastformer in encoder and decoder."""

    config = FastformerConfig
    encoder_attention = Factory(FastformerAttention, FLAGS | KERNEL)
    decoder_attention = Factory(FastformerCausalAttention, FLAGS | KERNEL)
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
