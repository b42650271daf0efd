"""Fastformer's flags: fairseq's transformer's and its own, and which of them cannot work."""

from typing import Any

from fairseq.dataclass import ChoiceEnum

from ..checks import check_rates, check_refused, check_sizes
from ..flat_config import FOLLOWS, flat_config, nested_config, option
from ..self_attention import SELF_ATTENTION_REFUSED

FASTFORMER_OPTIONS = {
    "fastformer_combine": option(
        ChoiceEnum(["product", "sum", "concat"]), "product", "how a global vector and a position's are combined"
    ),
    "fastformer_residual": option(
        ChoiceEnum(["query", "global-query"]),
        "query",
        "what is added at the end: a position's query, or the global one",
    ),
    "fastformer_share": option(
        ChoiceEnum(["none", "query-value", "query-key-value"]), "query-value", "which projections are one"
    ),
    "fastformer_kernel_size": option(
        int, 0, "words that a convolution before the attention reads, an odd number; 0: no convolution"
    ),
    "fastformer_share_layers": option(bool, False, "all layers of a side have the same self-attention"),
}

FastformerConfig = flat_config("FastformerConfig", FASTFORMER_OPTIONS, FOLLOWS)


def fastformer_config(cfg: Any) -> Any:
    """The nested config of a flat one, checked; see :func:`..flat_config.nested_config`.

    Raises:
        UsageError: naming the flag, its value and the mend.
    """
    nested = nested_config(FastformerConfig, cfg, FOLLOWS)
    check_refused(nested, SELF_ATTENTION_REFUSED)
    check_sizes(nested)
    check_rates(nested)
    return nested
