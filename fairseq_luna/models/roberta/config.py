"""The flags of RoBERTa with other attentions, with their checks.

fairseq's flags keep their names and defaults; the flags that prune softmax attention's heads are left out. As in its
``roberta`` and ``roberta_prenorm``, positions are learned, embeddings are not scaled, and they have a norm unless the
layers are pre-norm.
"""
# fairseq makes the type of an option with choices by a call:
# mypy: disable-error-code="valid-type"

from dataclasses import dataclass, field, fields
from typing import Any

from fairseq import utils
from fairseq.dataclass import ChoiceEnum, FairseqDataclass

from ..luna.config import LunaConfig
from ..mixed.config import CHOICES, check_read, options_read
from ..shared.architectures import TinyEncoder
from ..shared.config import (
    COMPILE_LAYERS,
    OLDER_NAME,
    TRANSFORMER_METADATA,
    ConvolutionOptions,
    OptionalInt,
    OptionalStr,
    config_of,
    nested_config,
)
from ..shared.flag_checks import (
    check_compiled_layers,
    check_heads_flag,
    check_layers_to_keep,
    check_positive_fields,
    check_probabilities,
    longest_text,
)
from .head import POOLINGS

Activation = ChoiceEnum(utils.get_available_activation_fns())
Pooling = ChoiceEnum(POOLINGS)


@dataclass
class RobertaConfig(FairseqDataclass):
    """The options of every RoBERTa."""

    encoder_layers: int = field(default=12, metadata=TRANSFORMER_METADATA["encoder_layers"])
    encoder_embed_dim: OptionalInt = field(default=768, metadata=TRANSFORMER_METADATA["encoder_embed_dim"])
    encoder_ffn_embed_dim: int = field(default=3072, metadata=TRANSFORMER_METADATA["encoder_ffn_embed_dim"])
    encoder_attention_heads: int = field(default=12, metadata=TRANSFORMER_METADATA["encoder_attention_heads"])
    encoder_normalize_before: bool = field(default=False, metadata=TRANSFORMER_METADATA["encoder_normalize_before"])
    encoder_layerdrop: float = field(default=0.0, metadata=TRANSFORMER_METADATA["encoder_layerdrop"])
    encoder_layers_to_keep: OptionalStr = field(default=None, metadata=TRANSFORMER_METADATA["encoder_layers_to_keep"])
    no_token_positional_embeddings: bool = field(
        default=False, metadata=TRANSFORMER_METADATA["no_token_positional_embeddings"]
    )
    activation_fn: Activation = field(default="gelu", metadata=TRANSFORMER_METADATA["activation_fn"])
    dropout: float = field(default=0.1, metadata=TRANSFORMER_METADATA["dropout"])
    attention_dropout: float = field(default=0.1, metadata=TRANSFORMER_METADATA["attention_dropout"])
    activation_dropout: float = field(default=0.0, metadata=TRANSFORMER_METADATA["activation_dropout"])
    checkpoint_activations: bool = field(default=False, metadata=TRANSFORMER_METADATA["checkpoint_activations"])
    offload_activations: bool = field(default=False, metadata=TRANSFORMER_METADATA["offload_activations"])
    min_params_to_wrap: int = field(default=100_000_000, metadata=TRANSFORMER_METADATA["min_params_to_wrap"])
    quant_noise_pq: float = field(default=0.0, metadata=TRANSFORMER_METADATA["quant_noise_pq"])
    quant_noise_pq_block_size: int = field(default=8, metadata=TRANSFORMER_METADATA["quant_noise_pq_block_size"])
    quant_noise_scalar: float = field(default=0.0, metadata=TRANSFORMER_METADATA["quant_noise_scalar"])
    compile_layers: bool = field(default=False, metadata=COMPILE_LAYERS)
    share_encoder_layers: bool = field(
        default=False, metadata={"help": "all layers are one, applied as often as there are layers"}
    )
    max_positions: OptionalInt = field(
        default=None, metadata={"help": "maximum tokens of a text (default: the task's)"}
    )
    untie_weights_roberta: bool = field(
        default=False, metadata={"help": "the masked language model's output has weights of its own"}
    )
    load_checkpoint_heads: bool = field(
        default=False, metadata={"help": "register the classification heads of a loaded checkpoint"}
    )
    pooling: Pooling = field(
        default="cls",
        metadata={
            "help": "what a classification head reads: the first token's vector, the mean of all, or a mean with"
            " learned weights"
        },
    )
    pooler_activation_fn: Activation = field(
        default="tanh", metadata={"help": "activation function of the classification head"}
    )
    pooler_dropout: float = field(default=0.0, metadata={"help": "dropout probability in the classification head"})


LUNA_FOLLOWS = {"encoder_projected_attention_heads": "encoder_attention_heads"}
LUNA_METADATA = {each.name: each.metadata for each in fields(LunaConfig)}


@dataclass
class LunaRobertaConfig(ConvolutionOptions, RobertaConfig):
    """The config of ``luna_roberta``: the Luna paper's size, with tied keys and values and 128 packed slots."""

    projection_length: int = field(default=128, metadata={"help": "length of the packed sequence"})
    encoder_projected_attention_heads: OptionalInt = field(
        default=None, metadata={"help": "heads of the pack attention (default: encoder attention heads)"}
    )
    fix_projection_length: bool = field(default=False, metadata=LUNA_METADATA["fix_projection_length"])
    untie_luna_kv: bool = field(default=False, metadata=LUNA_METADATA["untie_luna_kv"])
    word_dropout: float = field(default=0.0, metadata=LUNA_METADATA["word_dropout"])
    luna_kernel_size: OptionalInt = field(default=None, metadata=OLDER_NAME)


@dataclass
class LunaRobertaBaseConfig(LunaRobertaConfig):
    """RoBERTa's base size: 12 layers, 768/3072, 12 heads."""


@dataclass
class LunaRobertaBaseUntiedConfig(LunaRobertaConfig):
    """RoBERTa's base size, with separate projections for keys and values."""

    untie_luna_kv: bool = True


@dataclass
class LunaRobertaTinyConfig(TinyEncoder, LunaRobertaConfig):
    """For tests and small corpora, with 16 packed slots."""

    projection_length: int = 16


# The Luna paper's authors call the text encoders that they published so, also in the arguments of the checkpoints.
@dataclass
class LunaBertConfig(LunaRobertaConfig):
    """Their masked language model."""


@dataclass
class LunaBase512Config(LunaRobertaConfig):
    """The same for texts of up to 512 tokens."""


@dataclass
class LunaBaseTied512Config(LunaRobertaConfig):
    """The same by another name."""


@dataclass
class LunaBaseUntied512Config(LunaRobertaConfig):
    """The same with separate projections for keys and values."""

    untie_luna_kv: bool = True


LUNA_ARCHITECTURES = {
    "luna_roberta_base": LunaRobertaBaseConfig,
    "luna_roberta_base_untied": LunaRobertaBaseUntiedConfig,
    "luna_roberta_tiny": LunaRobertaTinyConfig,
    "luna_bert": LunaBertConfig,
    "luna_base_512": LunaBase512Config,
    "luna_base_tied_512": LunaBaseTied512Config,
    "luna_base_untied_512": LunaBaseUntied512Config,
}

MIXED_OPTIONS = options_read(["encoder"])
OF_MIXED_ENCODERS = ("encoder_self_attention", "attention_kernel_size")
MixedRobertaConfig: Any = config_of(
    __name__,
    "MixedRobertaConfig",
    {**{name: CHOICES[name] for name in OF_MIXED_ENCODERS}, **MIXED_OPTIONS},
    base=RobertaConfig,
)


@dataclass
class MixedRobertaBaseConfig(MixedRobertaConfig):
    """RoBERTa's base size: 12 layers, 768/3072, 12 heads."""


@dataclass
class MixedRobertaTinyConfig(TinyEncoder, MixedRobertaConfig):
    """For tests and small corpora: 4 layers, 128/256, 4 heads."""


MIXED_ARCHITECTURES = {"mixed_roberta_base": MixedRobertaBaseConfig, "mixed_roberta_tiny": MixedRobertaTinyConfig}


def luna_roberta_config(cfg: Any, task: Any) -> Any:
    """Return fairseq's nested transformer config of a LunaRobertaConfig, checked.

    Args:
        cfg: a LunaRobertaConfig, or a namespace or DictConfig with its fields; missing fields get their defaults.
        task: whose longest text is the default of ``max_positions``.

    Raises:
        UsageError: names the flag, its value and what to do.
    """
    nested = roberta_config(nested_config(LunaRobertaConfig, cfg, LUNA_FOLLOWS), task)
    check_positive_fields(nested, "projection_length")
    check_probabilities(nested, "word_dropout")
    side = nested.encoder
    check_heads_flag(
        "encoder_projected_attention_heads", side.projected_attention_heads, "encoder_embed_dim", side.embed_dim
    )
    return nested


def mixed_roberta_config(cfg: Any, task: Any) -> Any:
    """As :func:`luna_roberta_config`, of a MixedRobertaConfig."""
    nested = roberta_config(nested_config(MixedRobertaConfig, cfg, {}), task)
    check_read(nested, MIXED_OPTIONS, ["encoder"])
    return nested


def roberta_config(nested: Any, task: Any) -> Any:
    """Set in ``nested`` what is the same in every RoBERTa, and check what every family reads."""
    if nested.max_positions is None:
        nested.max_positions = longest_text(task)
    nested.max_source_positions = nested.max_positions
    nested.no_scale_embedding = nested.encoder.learned_pos = True
    nested.layernorm_embedding = not nested.encoder.normalize_before
    side = nested.encoder
    check_positive_fields(nested, "encoder.layers", "encoder.embed_dim", "encoder.ffn_embed_dim", "max_positions")
    check_positive_fields(nested, "quant_noise.pq_block_size")
    check_heads_flag("encoder_attention_heads", side.attention_heads, "encoder_embed_dim", side.embed_dim)
    check_layers_to_keep("encoder_layers_to_keep", side.layers_to_keep)
    check_probabilities(nested, "pooler_dropout")
    check_compiled_layers(nested)
    return nested
