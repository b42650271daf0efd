"""Luna's flags: fairseq's transformer's and its own, and which of them cannot work."""

from typing import Any

from fairseq.dataclass import ChoiceEnum

from ...ops.pack_activation import PACK_ACTIVATIONS
from ...usage_error import UsageError
from ..checks import REFUSED, check_heads, check_positive, check_rates, check_refused, check_sizes
from ..flat_config import FOLLOWS, flat_config, nested_config, option

LUNA_FOLLOWS = {
    **FOLLOWS,
    "encoder_projected_attention_heads": "encoder_attention_heads",
    "decoder_projected_attention_heads": "decoder_attention_heads",
}

LUNA_OPTIONS = {
    "projection_length": option(int, 32, "length of the packed sequence"),
    "fix_projection_length": option(
        bool, False, "use all packed slots for every sentence, not only as many as it has tokens"
    ),
    "untie_luna_kv": option(bool, False, "give keys and values projections of their own"),
    "word_dropout": option(float, 0.0, "dropout probability of whole words at the input"),
    "luna_activation": option(
        ChoiceEnum(list(PACK_ACTIVATIONS)), "softplus", "positive function of the causal pack scores"
    ),
    "luna_kernel_size": option(
        int, 0, "words that a convolution before the self-attention reads, an odd number; 0: no convolution"
    ),
    "luna_source_attention": option(
        ChoiceEnum(["packed", "softmax"]),
        "packed",
        "how the decoder attends to the source: through the packed sequence, or to each word as a transformer does",
    ),
}

LunaConfig = flat_config("LunaConfig", LUNA_OPTIONS, LUNA_FOLLOWS)


def luna_config(cfg: Any) -> Any:
    """The nested config of a flat one, checked.

    Args:
        cfg: a LunaConfig, or a namespace or DictConfig with its fields; those that it lacks get their defaults.

    Raises:
        UsageError: naming the flag, its value and the mend.
    """
    nested = nested_config(LunaConfig, cfg, LUNA_FOLLOWS)
    check_refused(nested, REFUSED)
    check_sizes(nested)
    check_rates(nested, "word_dropout")
    check_packed_sequence(nested)
    check_source_attention(nested)
    return nested


def check_packed_sequence(nested: Any) -> None:
    """Refuse a packed sequence that cannot be: UsageError."""
    encoder, decoder = nested.encoder, nested.decoder
    check_positive(nested, "projection_length")
    for name, side in (("encoder", encoder), ("decoder", decoder)):
        heads = side.projected_attention_heads
        check_heads(f"{name}_projected_attention_heads", heads, f"{name}_embed_dim", side.embed_dim)
    if encoder.embed_dim != decoder.embed_dim:
        raise UsageError(
            f"--decoder-embed-dim {decoder.embed_dim}: the decoder goes on with the encoder's packed sequence,"
            f" so it must equal --encoder-embed-dim {encoder.embed_dim}"
        )


def check_source_attention(nested: Any) -> None:
    """Refuse heads for a pack attention that the decoder then does not have: UsageError."""
    heads, default = nested.decoder.projected_attention_heads, nested.decoder.attention_heads
    if str(nested.luna_source_attention) == "softmax" and heads != default:
        raise UsageError(
            f"--decoder-projected-attention-heads {heads}: with --luna-source-attention softmax the decoder packs no"
            " source; leave it out"
        )
