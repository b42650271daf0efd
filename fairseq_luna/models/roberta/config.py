"""The flags of RoBERTa with other attentions, with their checks.

fairseq's flags keep their names and defaults; those that prune softmax attention's heads are left out. As in its
``roberta`` and ``roberta_prenorm``, positions are learned, embeddings are not scaled, and they have a norm unless the
layers are pre-norm.
"""

from typing import Any

from fairseq import utils
from fairseq.dataclass import ChoiceEnum

from ..luna.config import LUNA_OPTIONS
from ..mixed.config import CHOICES, check_read, options_read
from ..shared.checks import check_heads, check_layers_to_keep, check_positive, check_rates, longest_text
from ..shared.config import OptionalInt, config_of, convolution, nested_config, option, transformer_options
from .head import POOLINGS

ACTIVATIONS = ChoiceEnum(utils.get_available_activation_fns())

ROBERTA_OPTIONS = {
    **transformer_options(
        {
            "encoder_layers": 12,
            "encoder_embed_dim": 768,
            "encoder_ffn_embed_dim": 3072,
            "encoder_attention_heads": 12,
            "encoder_normalize_before": False,
            "encoder_layerdrop": 0.0,
            "encoder_layers_to_keep": None,
            "no_token_positional_embeddings": False,
            "activation_fn": "gelu",
            "dropout": 0.1,
            "attention_dropout": 0.1,
            "activation_dropout": 0.0,
            "checkpoint_activations": False,
            "offload_activations": False,
            "min_params_to_wrap": 100_000_000,
            "quant_noise_pq": 0.0,
            "quant_noise_pq_block_size": 8,
            "quant_noise_scalar": 0.0,
        }
    ),
    "share_encoder_layers": option(bool, False, "all layers are one, applied as often as there are layers"),
    "max_positions": option(OptionalInt, None, "maximum tokens of a text (default: the task's)"),
    "untie_weights_roberta": option(bool, False, "the masked language model's output has weights of its own"),
    "load_checkpoint_heads": option(bool, False, "register the classification heads of a loaded checkpoint"),
    "pooling": option(
        ChoiceEnum(POOLINGS),
        "cls",
        "what a classification head reads: the first token's vector, the mean of all, or a mean with learned weights",
    ),
    "pooler_activation_fn": option(ACTIVATIONS, "tanh", "activation function of the classification head"),
    "pooler_dropout": option(float, 0.0, "dropout probability in the classification head"),
}

OF_LUNAS_ENCODER = ("fix_projection_length", "untie_luna_kv", "word_dropout")
PACKED_HEADS = "encoder_projected_attention_heads"
LUNA_FOLLOWS = {PACKED_HEADS: "encoder_attention_heads"}
LunaRobertaConfig = config_of(
    __name__,
    "LunaRobertaConfig",
    {
        **ROBERTA_OPTIONS,
        "projection_length": option(int, 128, "length of the packed sequence"),
        PACKED_HEADS: option(OptionalInt, None, "heads of the pack attention (default: encoder attention heads)"),
        **{name: LUNA_OPTIONS[name] for name in OF_LUNAS_ENCODER},
        **convolution(older_name="luna_kernel_size"),
    },
)

MIXED_OPTIONS = options_read(["encoder"])
OF_MIXED_ENCODERS = ("encoder_self_attention", "attention_kernel_size")
MixedRobertaConfig = config_of(
    __name__,
    "MixedRobertaConfig",
    {**ROBERTA_OPTIONS, **{name: CHOICES[name] for name in OF_MIXED_ENCODERS}, **MIXED_OPTIONS},
)


def luna_roberta_config(cfg: Any, task: Any) -> Any:
    """Return fairseq's nested transformer config of a LunaRobertaConfig, checked.

    Args:
        cfg: a LunaRobertaConfig, or a namespace or DictConfig with its fields; missing fields get their defaults.
        task: whose longest text is the default of ``max_positions``.

    Raises:
        UsageError: names the flag, its value and what to do.
    """
    nested = roberta_config(nested_config(LunaRobertaConfig, cfg, LUNA_FOLLOWS), task)
    check_positive(nested, "projection_length")
    check_rates(nested, "word_dropout")
    side = nested.encoder
    check_heads(PACKED_HEADS, side.projected_attention_heads, "encoder_embed_dim", side.embed_dim)
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
    check_positive(nested, "encoder.layers", "encoder.embed_dim", "encoder.ffn_embed_dim", "max_positions")
    check_positive(nested, "quant_noise.pq_block_size")
    check_heads("encoder_attention_heads", side.attention_heads, "encoder_embed_dim", side.embed_dim)
    check_layers_to_keep("encoder_layers_to_keep", side.layers_to_keep)
    check_rates(nested, "pooler_dropout")
    return nested
