"""Flags that no family can use, and sizes that must fit together in all of them."""

from collections.abc import Mapping
from typing import Any

from ..usage_error import UsageError

# What fairseq's transformer config offers and this package cannot do, the value that means "not asked for", and why.
REFUSED: dict[str, tuple[Any, str]] = {
    "adaptive_input": (False, "adaptive input belongs to fairseq's language models; leave it out"),
    "char_inputs": (False, "character inputs are not supported; leave it out"),
    "base_layers": (0, "BASE layers are not supported; leave it out"),
    "encoder_xformers_att_config": (None, "this attention is not one of xFormers'; leave it out"),
    "decoder_xformers_att_config": (None, "this attention is not one of xFormers'; leave it out"),
}


def check_refused(nested: Any, refused: Mapping[str, tuple[Any, str]]) -> None:
    """Refuse by name what would otherwise be ignored: UsageError."""
    for name, (unused, reason) in refused.items():
        value = getattr(nested, name, unused)
        if value not in (unused, None):
            shown = "" if value is True else f" {value}"
            raise UsageError(f"{flag(name)}{shown}: {reason}")


def check_sizes(nested: Any) -> None:
    """Refuse numbers of layers and heads, and sizes of embeddings, that do not fit together: UsageError."""
    for name, side in (("encoder", nested.encoder), ("decoder", nested.decoder)):
        if side.layers < 1:
            raise UsageError(f"--{name}-layers {side.layers}: must be 1 or more")
        check_heads(f"{name}_attention_heads", side.attention_heads, f"{name}_embed_dim", side.embed_dim)
    decoder = nested.decoder
    if decoder.input_dim != decoder.embed_dim:
        raise UsageError(
            f"--decoder-input-dim {decoder.input_dim}: translation models embed words in --decoder-embed-dim"
            f" {decoder.embed_dim}; leave it out"
        )


def check_heads(heads_name: str, heads: int, size_name: str, size: int) -> None:
    """Refuse a number of heads that does not divide the channels: UsageError."""
    if heads < 1 or size % heads:
        raise UsageError(f"{flag(heads_name)} {heads}: must be 1 or more and divide {flag(size_name)} {size}")


def flag(name: str) -> str:
    """How the config field ``name`` is spelled on the command line."""
    return "--" + name.replace("_", "-")
