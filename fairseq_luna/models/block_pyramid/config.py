"""The pyramid's flags and their checks."""
# fairseq makes the type of an option with choices by a call:
# mypy: disable-error-code="valid-type"

from argparse import Namespace
from dataclasses import dataclass, field
from typing import Any

from fairseq import utils
from fairseq.dataclass import ChoiceEnum, FairseqDataclass

from ...usage_error import UsageError
from ..shared.config import OptionalInt, nested_config
from ..shared.flag_checks import (
    check_heads_flag,
    check_positions,
    check_positive_fields,
    check_probabilities,
    longest_text,
)

Activation = ChoiceEnum(utils.get_available_activation_fns())


@dataclass
class PyramidConfig(FairseqDataclass):
    """The config of ``block_pyramid_classifier``."""

    pyramid_block_sizes: str = field(
        default="4,8", metadata={"help": "block sizes of the parallel branches, such as 4,8"}
    )
    encoder_embed_dim: int = field(default=512, metadata={"help": "encoder embedding dimension"})
    encoder_ffn_embed_dim: int = field(default=2048, metadata={"help": "encoder embedding dimension for FFN"})
    encoder_layers: int = field(
        default=6, metadata={"help": "maximum layers of a branch; it ends where the longest text is one vector"}
    )
    encoder_attention_heads: int = field(default=8, metadata={"help": "num encoder attention heads"})
    encoder_normalize_before: bool = field(
        default=False, metadata={"help": "apply layernorm before each encoder block"}
    )
    encoder_learned_pos: bool = field(
        default=False, metadata={"help": "use learned positional embeddings in the encoder"}
    )
    no_token_positional_embeddings: bool = field(
        default=False, metadata={"help": "if set, disables positional embeddings"}
    )
    activation_fn: Activation = field(default="relu", metadata={"help": "activation function to use"})
    dropout: float = field(default=0.1, metadata={"help": "dropout probability"})
    attention_dropout: float = field(default=0.0, metadata={"help": "dropout probability for attention weights"})
    activation_dropout: float = field(default=0.0, metadata={"help": "dropout probability after activation in FFN"})
    pooler_activation_fn: Activation = field(
        default="tanh", metadata={"help": "activation function of the classification head"}
    )
    pooler_dropout: float = field(default=0.0, metadata={"help": "dropout probability in the classification head"})
    max_source_positions: OptionalInt = field(
        default=None, metadata={"help": "maximum tokens of a text (default: --max-positions)"}
    )
    # fairseq's task sets this field of the model's config.
    max_positions: OptionalInt = field(
        default=None, metadata={"help": "maximum tokens of a text (default: the task's)"}
    )


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
    check_positive_fields(
        nested, "encoder.layers", "encoder.embed_dim", "encoder.ffn_embed_dim", "max_source_positions"
    )
    check_probabilities(nested, "pooler_dropout")
    check_positions(nested, "encoder")
    check_heads_flag("encoder_attention_heads", side.attention_heads, "encoder_embed_dim", side.embed_dim)
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
