"""Flags that no family can use, and sizes that must fit together in all of them."""

from collections.abc import Mapping
from itertools import pairwise
from operator import attrgetter
from typing import Any

from fairseq import utils

from ..usage_error import UsageError

# What fairseq's transformer config offers and this package cannot do, the value that means "not asked for", and why.
REFUSED: dict[str, tuple[Any, str]] = {
    "adaptive_input": (False, "adaptive input belongs to fairseq's language models; leave it out"),
    "tie_adaptive_weights": (False, "it ties to adaptive input, which belongs to language models; leave it out"),
    "tie_adaptive_proj": (False, "it ties to adaptive input, which belongs to language models; leave it out"),
    "char_inputs": (False, "character inputs are not supported; leave it out"),
    "base_layers": (0, "BASE layers are not supported; leave it out"),
    "encoder_xformers_att_config": (None, "this attention is not one of xFormers'; leave it out"),
    "decoder_xformers_att_config": (None, "this attention is not one of xFormers'; leave it out"),
}

# Where fairseq's nested transformer config holds a probability.
RATES = (
    "dropout",
    "attention_dropout",
    "activation_dropout",
    "relu_dropout",
    "encoder.layerdrop",
    "decoder.layerdrop",
    "quant_noise.pq",
)


def check_refused(nested: Any, refused: Mapping[str, tuple[Any, str]]) -> None:
    """Refuse by name what would otherwise be ignored: UsageError."""
    for name, (unused, reason) in refused.items():
        value = getattr(nested, name, unused)
        if value not in (unused, None):
            shown = "" if value is True else f" {value}"
            raise UsageError(f"{flag(name)}{shown}: {reason}")


def check_sizes(nested: Any) -> None:
    """Refuse numbers of layers and heads, and sizes of embeddings, that do not fit together: UsageError."""
    check_positive(nested, "max_source_positions", "max_target_positions", "quant_noise.pq_block_size")
    for name in ("encoder", "decoder"):
        side = getattr(nested, name)
        check_positive(nested, f"{name}.layers", f"{name}.embed_dim", f"{name}.ffn_embed_dim")
        check_heads(f"{name}_attention_heads", side.attention_heads, f"{name}_embed_dim", side.embed_dim)
        check_layers_to_keep(f"{name}_layers_to_keep", side.layers_to_keep)
    check_positive(nested, "decoder.output_dim")
    check_positions(nested, "encoder", "decoder")
    decoder = nested.decoder
    if decoder.input_dim != decoder.embed_dim:
        raise UsageError(
            f"--decoder-input-dim {decoder.input_dim}: translation models embed words in --decoder-embed-dim"
            f" {decoder.embed_dim}; leave it out"
        )
    merged = getattr(nested, "merge_src_tgt_embed", False) and not nested.share_all_embeddings  # not in every fairseq
    if merged and decoder.embed_dim != nested.encoder.embed_dim:
        raise UsageError(
            f"--merge-src-tgt-embed: --decoder-embed-dim {decoder.embed_dim} must equal --encoder-embed-dim"
            f" {nested.encoder.embed_dim}"
        )


def check_positions(nested: Any, *names: str) -> None:
    """Refuse the two sizes for which fairseq's sinusoidal positions divide by zero: UsageError."""
    for name in names:
        side = getattr(nested, name)
        if side.embed_dim in (2, 3) and not (side.learned_pos or nested.no_token_positional_embeddings):
            origin = " (--encoder-embed-dim unless given)" if name == "decoder" else ""
            raise UsageError(
                f"{flag(name)}-embed-dim {side.embed_dim}{origin}: sinusoidal positions need 4 or more; or give"
                f" {flag(name)}-learned-pos"
            )


def check_heads(heads_name: str, heads: int, size_name: str, size: int) -> None:
    """Refuse a number of heads that does not divide the channels: UsageError."""
    if heads < 1 or size % heads:
        raise UsageError(f"{flag(heads_name)} {heads}: must be 1 or more and divide {flag(size_name)} {size}")


def check_positive(nested: Any, *places: str) -> None:
    """Refuse a number below 1 at any of ``places``, such as ``encoder.layers``: UsageError."""
    for place in places:
        value = attrgetter(place)(nested)
        if value is not None and value < 1:
            raise UsageError(f"{flag(place)} {value}: must be 1 or more")


def check_rates(nested: Any, *more: str) -> None:
    """Refuse probabilities that are none, in every family's places and ``more``: UsageError."""
    for place in (*RATES, *more):
        value = attrgetter(place)(nested)
        if not 0 <= value < 1:
            raise UsageError(f"{flag(place)} {value}: must be at least 0 and less than 1")
    if nested.adaptive_softmax_cutoff:
        check_adaptive_softmax(nested)
    scalar = nested.quant_noise.scalar
    if not 0 <= scalar <= 1:  # 1: every weight is quantised in training too
        raise UsageError(f"{flag('quant_noise.scalar')} {scalar}: must be at least 0 and at most 1")


def check_adaptive_softmax(nested: Any) -> None:
    """Refuse bands that are none, a dropout that is no probability, a factor that divides no size: UsageError."""
    cutoff = utils.eval_str_list(nested.adaptive_softmax_cutoff, type=int)
    if any(later <= earlier for earlier, later in pairwise([0, *cutoff])):
        raise UsageError(f"--adaptive-softmax-cutoff {cutoff}: must be above 0 and ascending, such as 4000,20000")
    dropout, factor = nested.adaptive_softmax_dropout, nested.adaptive_softmax_factor
    if not 0 <= dropout < 1:
        raise UsageError(f"--adaptive-softmax-dropout {dropout}: must be at least 0 and less than 1")
    if not factor > 0:
        raise UsageError(f"--adaptive-softmax-factor {factor}: must be above 0, such as 4")


def check_layers_to_keep(name: str, kept: str | None) -> None:
    """Refuse what is no list of layers; whether the checkpoint has them is seen where it is loaded: UsageError."""
    layers = [part.strip() for part in kept.split(",")] if kept else []
    if not all(layer.isdecimal() for layer in layers) or len({*map(int, layers)}) < len(layers):
        raise UsageError(f"{flag(name)} {kept}: must be numbers of layers from 0 with commas between, such as 0,2,4")


def flag(name: str) -> str:
    """How the config field ``name``, or the part of the nested config at that place, is spelled on the command line."""
    return "--" + name.replace("_", "-").replace(".", "-")
