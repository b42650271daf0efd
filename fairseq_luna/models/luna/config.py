"""Luna's flags: fairseq's transformer's and its own, and which of them cannot work."""

from typing import Any

from fairseq.dataclass import ChoiceEnum

from ...ops.pack_activation import PACK_ACTIVATIONS
from ...usage_error import UsageError
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
}

LunaConfig = flat_config("LunaConfig", LUNA_OPTIONS, LUNA_FOLLOWS)

# What fairseq's transformer config offers and Luna cannot do, with the value that means "not asked for".
REFUSED: dict[str, tuple[Any, str]] = {
    "adaptive_input": (False, "adaptive input belongs to fairseq's language models; leave it out"),
    "char_inputs": (False, "character inputs are not supported; leave it out"),
    "base_layers": (0, "BASE layers cannot carry the packed sequence; leave it out"),
    "encoder_xformers_att_config": (None, "Luna's attention is not one of xFormers'; leave it out"),
    "decoder_xformers_att_config": (None, "Luna's attention is not one of xFormers'; leave it out"),
}


def luna_config(cfg: Any) -> Any:
    """The nested config of a flat one, checked.

    Args:
        cfg: a LunaConfig, or a namespace or DictConfig with its fields; fields that it lacks get their defaults.

    Raises:
        UsageError: naming the flag, its value and the mend.
    """
    nested = nested_config(with_defaults(cfg), LUNA_FOLLOWS)
    check_refused(nested)
    check_sizes(nested)
    return nested


def with_defaults(cfg: Any) -> Any:
    """``cfg`` as a LunaConfig, so that a checkpoint written before a flag existed can be built."""
    values = LunaConfig()
    for key in vars(values):
        if (key in cfg) if hasattr(cfg, "__contains__") else hasattr(cfg, key):
            setattr(values, key, getattr(cfg, key))
    return values


def check_refused(nested: Any) -> None:
    """Refuse what would otherwise be ignored."""
    for name, (unused, reason) in REFUSED.items():
        value = getattr(nested, name, unused)
        if value not in (unused, None):
            shown = "" if value is True else f" {value}"
            raise UsageError(f"--{name.replace('_', '-')}{shown}: {reason}")


def check_sizes(nested: Any) -> None:
    """Refuse sizes that do not fit together."""
    encoder, decoder = nested.encoder, nested.decoder
    if nested.projection_length < 1:
        raise UsageError(f"--projection-length {nested.projection_length}: must be 1 or more")
    if not 0 <= nested.word_dropout < 1:
        raise UsageError(f"--word-dropout {nested.word_dropout}: must be at least 0 and less than 1")
    for name, side in (("encoder", encoder), ("decoder", decoder)):
        if side.layers < 1:
            raise UsageError(f"--{name}-layers {side.layers}: must be 1 or more")
        for flag, heads in (
            ("attention-heads", side.attention_heads),
            ("projected-attention-heads", side.projected_attention_heads),
        ):
            if heads < 1 or side.embed_dim % heads:
                raise UsageError(
                    f"--{name}-{flag} {heads}: must be 1 or more and divide --{name}-embed-dim {side.embed_dim}"
                )
    if decoder.input_dim != decoder.embed_dim:
        raise UsageError(
            f"--decoder-input-dim {decoder.input_dim}: translation models embed words in --decoder-embed-dim"
            f" {decoder.embed_dim}; leave it out"
        )
    if encoder.embed_dim != decoder.embed_dim:
        raise UsageError(
            f"--decoder-embed-dim {decoder.embed_dim}: the decoder goes on with the encoder's packed sequence,"
            f" so it must equal --encoder-embed-dim {encoder.embed_dim}"
        )
