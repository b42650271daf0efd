"""The pyramid's flags and their checks."""

from argparse import Namespace
from typing import Any

from fairseq import utils
from fairseq.dataclass import ChoiceEnum

from ...usage_error import UsageError
from ..shared.checks import check_heads, check_positions, check_positive, check_rates, longest_text
from ..shared.config import OptionalInt, config_of, nested_config, option

ACTIVATIONS = ChoiceEnum(utils.get_available_activation_fns())


PYRAMID_OPTIONS = {
    "pyramid_block_sizes": option(str, "4,8", "block sizes of the parallel branches, such as 4,8"),
    "encoder_embed_dim": option(int, 512, "encoder embedding dimension"),
    "encoder_ffn_embed_dim": option(int, 2048, "encoder embedding dimension for FFN"),
    "encoder_layers": option(int, 6, "maximum layers of a branch; it ends where the longest text is one vector"),
    "encoder_attention_heads": option(int, 8, "num encoder attention heads"),
    "encoder_normalize_before": option(bool, False, "apply layernorm before each encoder block"),
    "encoder_learned_pos": option(bool, False, "use learned positional embeddings in the encoder"),
    "no_token_positional_embeddings": option(bool, False, "if set, disables positional embeddings"),
    "activation_fn": option(ACTIVATIONS, "relu", "activation function to use"),
    "dropout": option(float, 0.1, "dropout probability"),
    "attention_dropout": option(float, 0.0, "dropout probability for attention weights"),
    "activation_dropout": option(float, 0.0, "dropout probability after activation in FFN"),
    "pooler_activation_fn": option(ACTIVATIONS, "tanh", "activation function of the classification head"),
    "pooler_dropout": option(float, 0.0, "dropout probability in the classification head"),
    "max_source_positions": option(OptionalInt, None, "maximum tokens of a text (default: --max-positions)"),
    # fairseq's task sets this field of the model's config.
    "max_positions": option(OptionalInt, None, "maximum tokens of a text (default: the task's)"),
}

PyramidConfig = config_of(__name__, "PyramidConfig", PYRAMID_OPTIONS)


def pyramid_config(cfg: Any, task: Any) -> Any:
    """Return fairseq's nested transformer config with the pyramid's fields, checked; block sizes are a list of int.

    Args:
        cfg: a PyramidConfig, or a namespace or DictConfig with its fields.
        task: whose longest text is the default of ``max_positions``.

    Raises:
        UsageError: names the flag, its value and what to do.
    """
    nested = nested_config(PyramidConfig, cfg, {"max_source_positions": "max_positions"})
    if nested.max_source_positions is None:
        nested.max_source_positions = longest_text(task)
    nested.pyramid_block_sizes = block_sizes(nested.pyramid_block_sizes)
    side = nested.encoder
    check_positive(nested, "encoder.layers", "encoder.embed_dim", "encoder.ffn_embed_dim", "max_source_positions")
    check_rates(nested, "pooler_dropout")
    check_positions(nested, "encoder")
    check_heads("encoder_attention_heads", side.attention_heads, "encoder_embed_dim", side.embed_dim)
    return nested


def block_sizes(text: str) -> list[int]:
    """Parse sizes such as ``"4,8"``; UsageError unless each is an integer of 2 or more."""
    parts = [part.strip() for part in str(text).split(",")]
    if not all(part.isdecimal() and int(part) >= 2 for part in parts):
        raise UsageError(f"--pyramid-block-sizes {text}: must be numbers of 2 or more, such as 4,8")
    return [int(part) for part in parts]


def depth(block_size: int, cfg: Namespace) -> int:
    """Number of layers of a branch: enough to reduce the longest text to one vector, from 1 to ``encoder.layers``."""
    length, layers = cfg.max_source_positions, 0
    while length > 1 and layers < cfg.encoder.layers:
        length = -(-length // block_size)
        layers += 1
    return max(layers, 1)
