"""Block attention's flags: fairseq's transformer's and its own, and which of them cannot work."""

from typing import Any

from fairseq.dataclass import ChoiceEnum

from ...usage_error import UsageError
from ..checks import check_positive, check_rates, check_refused, check_sizes
from ..flat_config import FOLLOWS, flat_config, nested_config, option
from ..self_attention import SELF_ATTENTION_REFUSED

BLOCK_OPTIONS = {
    "num_blocks": option(int, 0, "blocks that the encoder cuts a sentence into; 0: the optimum, (n^2 / 2)^(1/3)"),
    "random_blocks": option(bool, False, "cut blocks of random sizes in training, anew in each layer and step"),
    "share_block_levels": option(bool, False, "attention between blocks has the projections of that inside them"),
    "share_block_layers": option(bool, False, "all layers of a side have the same self-attention"),
    "unordered_blocks": option(
        ChoiceEnum(["none", "mean", "sum"]), "none", "what stands for attention inside a block, heedless of its order"
    ),
    "block_kernel_size": option(
        int, 0, "words that a convolution before the attention reads, an odd number; 0: no convolution"
    ),
    "decoder_block_size": option(int, 8, "words in a block of the decoder"),
}

BlockConfig = flat_config("BlockConfig", BLOCK_OPTIONS, FOLLOWS)


def block_config(cfg: Any) -> Any:
    """The nested config of a flat one, checked; see :func:`..flat_config.nested_config`.

    Raises:
        UsageError: naming the flag, its value and the mend.
    """
    nested = nested_config(BlockConfig, cfg, FOLLOWS)
    check_refused(nested, SELF_ATTENTION_REFUSED)
    check_sizes(nested)
    check_rates(nested)
    if nested.num_blocks < 0:
        raise UsageError(f"--num-blocks {nested.num_blocks}: must be 1 or more, or 0 for the optimum")
    check_positive(nested, "decoder.block_size")
    return nested
