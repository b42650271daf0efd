"""Luna's flags: those of fairseq's transformer and its own, with their checks."""

import math
from typing import Any

from fairseq.dataclass import ChoiceEnum

from ...ops.luna_causal_attention import KERNELS, PACK_ACTIVATIONS
from ...usage_error import UsageError
from ..shared.checks import check_heads, check_positive
from ..shared.config import FOLLOWS, checked_config, convolution, flat_config, option

LUNA_FOLLOWS = {
    **FOLLOWS,
    "encoder_projected_attention_heads": "encoder_attention_heads",
    "decoder_projected_attention_heads": "decoder_attention_heads",
}

SOURCE_ATTENTIONS = ["packed", "softmax"]
LUNA_OPTIONS = {
    "projection_length": option(int, 32, "length of the packed sequence"),
    "fix_projection_length": option(
        bool, False, "use all slots of the packed sequence for every sentence, not at most one for each token"
    ),
    "untie_luna_kv": option(bool, False, "use separate projections for keys and values"),
    "word_dropout": option(float, 0.0, "dropout probability of whole words at the input"),
    "luna_activation": option(
        ChoiceEnum(list(PACK_ACTIVATIONS)), "softplus", "positive function of the causal pack scores"
    ),
    **convolution(older_name="luna_kernel_size"),
    "luna_kernel": option(
        ChoiceEnum(list(KERNELS)),
        "torch",
        "of the decoder's self-attention in training; triton is for a GPU: at first use it"
        " compares itself with torch there, and is left out with a warning if they differ",
    ),
    "luna_source_attention": option(
        ChoiceEnum(SOURCE_ATTENTIONS),
        "packed",
        "how the decoder attends to the source: through the packed sequence, or with softmax attention to each word",
    ),
    "luna_segment_bias": option(
        float,
        0.0,
        "start of a learned number per head that is added where the decoder packs the words of a slot's own segment of"
        " the source; 0: none, as in the paper",
    ),
}

LunaConfig = flat_config(__name__, "LunaConfig", LUNA_OPTIONS, LUNA_FOLLOWS)


def luna_config(cfg: Any) -> Any:
    """Return the nested config of a flat one, checked.

    Args:
        cfg: a LunaConfig, or a namespace or DictConfig with its fields; missing fields get their defaults.

    Raises:
        UsageError: names the flag, its value and what to do.
    """
    nested = checked_config(LunaConfig, cfg, follows=LUNA_FOLLOWS, rates=("word_dropout",))
    check_packed_sequence(nested)
    check_source_attention(nested)
    return nested


def check_packed_sequence(nested: Any) -> None:
    """Check the sizes of the packed sequence and its heads: UsageError."""
    encoder, decoder = nested.encoder, nested.decoder
    check_positive(nested, "projection_length")
    for name, side in (("encoder", encoder), ("decoder", decoder)):
        heads = side.projected_attention_heads
        check_heads(f"{name}_projected_attention_heads", heads, f"{name}_embed_dim", side.embed_dim)
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
            f"--luna-segment-bias {nested.luna_segment_bias}: only packed attention to the source reads it; leave it"
            " out"
        )
    if not math.isfinite(nested.luna_segment_bias):
        raise UsageError(f"--luna-segment-bias {nested.luna_segment_bias}: must be a number such as 4")
    if nested.no_cross_attention and not nested.cross_self_attention:
        raise UsageError(
            "--no-cross-attention: without --cross-self-attention nothing reads the last feed-forward network of the"
            " encoder; give both or neither"
        )
