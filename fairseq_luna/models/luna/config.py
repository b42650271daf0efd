"""Luna's flags: the flags of fairseq's transformer and Luna's own, with their checks, and the named architectures."""
# fairseq makes the type of an option with choices by a call:
# mypy: disable-error-code="valid-type"

import math
from dataclasses import dataclass, field
from typing import Any

from fairseq.dataclass import ChoiceEnum

from ...ops.luna_causal_attention import KERNELS, PACK_ACTIVATIONS
from ...usage_error import UsageError
from ..shared.architectures import Big, IwsltDeEn, Tiny
from ..shared.config import (
    FOLLOWS,
    OLDER_NAME,
    ConvolutionOptions,
    FlatTransformerConfig,
    OptionalInt,
    checked_config,
)
from ..shared.flag_checks import check_heads_flag, check_positive_fields

LUNA_FOLLOWS = {
    **FOLLOWS,
    "encoder_projected_attention_heads": "encoder_attention_heads",
    "decoder_projected_attention_heads": "decoder_attention_heads",
}

SOURCE_ATTENTIONS = ["packed", "softmax"]
LunaActivation = ChoiceEnum(list(PACK_ACTIVATIONS))
LunaKernel = ChoiceEnum(list(KERNELS))
LunaSourceAttention = ChoiceEnum(SOURCE_ATTENTIONS)


@dataclass
class LunaConfig(ConvolutionOptions, FlatTransformerConfig):
    """The flat config of ``luna``: the paper's base size with tied keys and values and 32 packed slots."""

    projection_length: int = field(default=32, metadata={"help": "length of the packed sequence"})
    fix_projection_length: bool = field(
        default=False,
        metadata={"help": "use all slots of the packed sequence for every sentence, not at most one for each token"},
    )
    untie_luna_kv: bool = field(default=False, metadata={"help": "use separate projections for keys and values"})
    word_dropout: float = field(default=0.0, metadata={"help": "dropout probability of whole tokens at the input"})
    luna_activation: LunaActivation = field(
        default="softplus", metadata={"help": "positive function of the causal pack scores"}
    )
    luna_kernel_size: OptionalInt = field(default=None, metadata=OLDER_NAME)
    luna_kernel: LunaKernel = field(
        default="torch",
        metadata={
            "help": "of the decoder's self-attention in training; triton is for a GPU: at first use it"
            " compares itself with torch there, and is left out with a warning if they differ"
        },
    )
    luna_source_attention: LunaSourceAttention = field(
        default="packed",
        metadata={
            "help": "how the decoder attends to the source: through the packed sequence, or with softmax attention to"
            " each token"
        },
    )
    luna_segment_bias: float = field(
        default=0.0,
        metadata={
            "help": "start of a learned number per head that is added where the decoder packs the tokens of a slot's"
            " own segment of the source; 0: none, as in the paper"
        },
    )
    encoder_projected_attention_heads: OptionalInt = field(
        default=None, metadata={"help": "encoder projected attention heads (default: encoder attention heads)"}
    )
    decoder_projected_attention_heads: OptionalInt = field(
        default=None, metadata={"help": "decoder projected attention heads (default: decoder attention heads)"}
    )


@dataclass
class LunaBaseConfig(LunaConfig):
    """The paper's base size, with tied keys and values."""


@dataclass
class LunaBaseTiedConfig(LunaConfig):
    """The paper's base size, by another name."""


@dataclass
class LunaBaseUntiedConfig(LunaConfig):
    """The paper's base size, with separate projections for keys and values."""

    untie_luna_kv: bool = True


@dataclass
class Luna16Config(LunaConfig):
    """The paper's base size with 16 packed slots."""

    projection_length: int = 16


@dataclass
class Luna16UntiedConfig(LunaBaseUntiedConfig):
    """16 packed slots, with separate projections for keys and values."""

    projection_length: int = 16


@dataclass
class Luna32Config(LunaConfig):
    """The paper's base size with 32 packed slots."""

    projection_length: int = 32


@dataclass
class Luna32UntiedConfig(LunaBaseUntiedConfig):
    """32 packed slots, with separate projections for keys and values."""

    projection_length: int = 32


@dataclass
class LunaBigConfig(Big, LunaConfig):
    """The paper's big size."""


@dataclass
class LunaIwsltDeEnConfig(IwsltDeEn, LunaConfig):
    """The size of fairseq's ``transformer_iwslt_de_en``."""


@dataclass
class LunaTinyConfig(Tiny, LunaConfig):
    """For tests and small corpora, with 16 packed slots."""

    projection_length: int = 16


ARCHITECTURES = {
    "luna_base": LunaBaseConfig,
    "luna_base_tied": LunaBaseTiedConfig,
    "luna_base_untied": LunaBaseUntiedConfig,
    "luna_16": Luna16Config,
    "luna_16_untied": Luna16UntiedConfig,
    "luna_32": Luna32Config,
    "luna_32_untied": Luna32UntiedConfig,
    "luna_big": LunaBigConfig,
    "luna_iwslt_de_en": LunaIwsltDeEnConfig,
    "luna_tiny": LunaTinyConfig,
}


def luna_config(cfg: Any) -> Any:
    """Return the nested config of a flat one, checked.

    Args:
        cfg: a LunaConfig, or a namespace or DictConfig with its fields; missing fields get their defaults.

    Raises:
        UsageError: names the flag, its value and what to do.
    """
    nested = checked_config(LunaConfig, cfg, follows=LUNA_FOLLOWS, probabilities=("word_dropout",))
    check_packed_sequence(nested)
    check_source_attention(nested)
    return nested


def check_packed_sequence(nested: Any) -> None:
    """Check the sizes of the packed sequence and its heads: UsageError."""
    encoder, decoder = nested.encoder, nested.decoder
    check_positive_fields(nested, "projection_length")
    for name, side in (("encoder", encoder), ("decoder", decoder)):
        heads = side.projected_attention_heads
        check_heads_flag(f"{name}_projected_attention_heads", heads, f"{name}_embed_dim", side.embed_dim)
    if encoder.embed_dim != decoder.embed_dim:
        raise UsageError(
            f"--decoder-embed-dim {decoder.embed_dim}: must equal --encoder-embed-dim {encoder.embed_dim}, because the"
            " decoder continues the encoder's packed sequence"
        )


def check_source_attention(nested: Any) -> None:
    """Refuse an unknown attention, and parameters that nothing would read: UsageError."""
    if nested.luna_source_attention not in SOURCE_ATTENTIONS:
        raise UsageError(
            f"--luna-source-attention {nested.luna_source_attention}: choose one of {', '.join(SOURCE_ATTENTIONS)}"
        )
    heads, default = nested.decoder.projected_attention_heads, nested.decoder.attention_heads
    if nested.luna_source_attention == "softmax" and heads != default:
        raise UsageError(
            f"--decoder-projected-attention-heads {heads}: with --luna-source-attention softmax the decoder does not"
            " pack the source; leave it out"
        )
    reads_packed = nested.luna_source_attention == "packed" and not nested.no_cross_attention
    if nested.luna_segment_bias and not reads_packed:
        raise UsageError(
            f"--luna-segment-bias {nested.luna_segment_bias}: only packed cross-attention reads it; leave it out"
        )
    if not math.isfinite(nested.luna_segment_bias):
        raise UsageError(f"--luna-segment-bias {nested.luna_segment_bias}: must be a number such as 4")
    if nested.no_cross_attention and not nested.cross_self_attention:
        raise UsageError(
            "--no-cross-attention: without --cross-self-attention nothing reads the last feed-forward network of the"
            " encoder; give both or neither"
        )
