"""Checks of flags, for every family. Each raises UsageError, naming the flag, its value and what to do."""

import math
from collections.abc import Mapping
from itertools import pairwise
from operator import attrgetter
from typing import Any

from fairseq import utils

from ...modules.argument_checks import check_heads
from ...usage_error import UsageError, flag

# Options of fairseq's transformer that this package does not support: the value when unset, and the reason.
REFUSED: dict[str, tuple[Any, str]] = {
    "adaptive_input": (False, "adaptive input is for fairseq's language models; leave it out"),
    "tie_adaptive_weights": (False, "it needs adaptive input, which is for language models; leave it out"),
    "tie_adaptive_proj": (False, "it needs adaptive input, which is for language models; leave it out"),
    "char_inputs": (False, "character inputs are not supported; leave it out"),
    "base_layers": (0, "BASE layers are not supported; leave it out"),
    "encoder_xformers_att_config": (None, "xFormers attention is not supported; leave it out"),
    "decoder_xformers_att_config": (None, "xFormers attention is not supported; leave it out"),
}

# The same for families whose self-attention cannot read the source too.
REFUSED_OUTSIDE_LUNA = {
    **REFUSED,
    "cross_self_attention": (False, "only luna supports it; leave it out"),
    "no_cross_attention": (False, "nothing would read the source; leave it out"),
}

# Probabilities in fairseq's nested config.
PROBABILITIES = (
    "dropout",
    "attention_dropout",
    "activation_dropout",
    "relu_dropout",
    "encoder.layerdrop",
    "decoder.layerdrop",
    "quant_noise.pq",
)


def check_refused(nested: Any, refused: Mapping[str, tuple[Any, str]]) -> None:
    """Refuse unsupported options instead of ignoring them."""
    for name, (unset, reason) in refused.items():
        value = getattr(nested, name, unset)
        if value not in (unset, None):
            shown = "" if value is True else f" {value}"
            raise UsageError(f"{flag(name)}{shown}: {reason}")


def check_sizes(nested: Any) -> None:
    """Check numbers of layers and heads, and embedding sizes."""
    check_positive_fields(nested, "max_source_positions", "max_target_positions", "quant_noise.pq_block_size")
    for name in ("encoder", "decoder"):
        side = getattr(nested, name)
        check_positive_fields(nested, f"{name}.layers", f"{name}.embed_dim", f"{name}.ffn_embed_dim")
        check_heads_flag(f"{name}_attention_heads", side.attention_heads, f"{name}_embed_dim", side.embed_dim)
        check_layers_to_keep(f"{name}_layers_to_keep", side.layers_to_keep)
    check_positive_fields(nested, "decoder.output_dim")
    check_positions(nested, "encoder", "decoder")
    decoder = nested.decoder
    if decoder.input_dim != decoder.embed_dim:
        raise UsageError(
            f"--decoder-input-dim {decoder.input_dim}: must equal --decoder-embed-dim {decoder.embed_dim} in"
            " translation models; leave it out"
        )
    merged = getattr(nested, "merge_src_tgt_embed", False)  # not in every fairseq
    shared = nested.share_all_embeddings or nested.share_decoder_input_output_embed or merged
    if shared and nested.adaptive_softmax_cutoff is None and decoder.output_dim != decoder.embed_dim:
        raise UsageError(
            f"--decoder-output-dim {decoder.output_dim}: must equal --decoder-embed-dim {decoder.embed_dim}, because"
            " the embeddings of inputs and outputs are shared; leave it out"
        )
    if merged and not nested.share_all_embeddings and decoder.embed_dim != nested.encoder.embed_dim:
        raise UsageError(
            f"--merge-src-tgt-embed: --decoder-embed-dim {decoder.embed_dim} must equal --encoder-embed-dim"
            f" {nested.encoder.embed_dim}"
        )


def check_alignment(nested: Any) -> None:
    """Check the layer and the number of heads whose cross-attention is returned."""
    kept = nested.decoder.layers_to_keep
    layers = len(kept.split(",")) if kept else nested.decoder.layers
    heads = nested.decoder.attention_heads
    for name, low, high in (("alignment_layer", 0, layers - 1), ("alignment_heads", 1, heads)):
        value = getattr(nested, name)
        if value is None:
            continue
        if nested.no_cross_attention:
            raise UsageError(f"{flag(name)} {value}: with --no-cross-attention there is no alignment; leave it out")
        if not low <= value <= high:
            raise UsageError(f"{flag(name)} {value}: must be at least {low} and at most {high}")


def check_trained_alignment(nested: Any, refusal: str | None = None) -> None:
    """Check that the cross-attention can be trained with --load-alignments.

    Args:
        nested: the nested config.
        refusal: why not, for an attention whose weights have no logarithm.
    """
    if nested.no_cross_attention:
        refusal = "with --no-cross-attention there is no cross-attention"
    if nested.decoder.layerdrop > 0:
        refusal = f"with --decoder-layerdrop {nested.decoder.layerdrop} its layer may be left out"
    if refusal:
        raise UsageError(f"--load-alignments: {refusal}; give one or the other")


def check_positions(nested: Any, *names: str) -> None:
    """Refuse the two sizes for which fairseq's sinusoidal positions divide by zero."""
    for name in names:
        side = getattr(nested, name)
        if side.embed_dim in (2, 3) and not (side.learned_pos or nested.no_token_positional_embeddings):
            origin = " (--encoder-embed-dim unless given)" if name == "decoder" else ""
            raise UsageError(
                f"{flag(name)}-embed-dim {side.embed_dim}{origin}: sinusoidal positions need 4 or more; or give"
                f" {flag(name)}-learned-pos"
            )


def check_heads_flag(heads_name: str, heads: int, size_name: str, size: int) -> None:
    """Check that the number of heads divides the channels."""
    check_heads(heads, size, name=flag(heads_name), size_name=flag(size_name))


def check_positive_fields(nested: Any, *places: str) -> None:
    """Check that the number at each of ``places``, such as ``encoder.layers``, is 1 or more if it is set."""
    for place in places:
        value = attrgetter(place)(nested)
        if value is not None and value < 1:
            raise UsageError(f"{flag(place)} {value}: must be 1 or more")


def check_probabilities(nested: Any, *more: str) -> None:
    """Check the probabilities at :data:`PROBABILITIES` and ``more``."""
    for place in (*PROBABILITIES, *more):
        value = attrgetter(place)(nested)
        if not 0 <= value < 1:
            raise UsageError(f"{flag(place)} {value}: must be at least 0 and less than 1")
    if nested.adaptive_softmax_cutoff:
        check_adaptive_softmax(nested)
    scalar = nested.quant_noise.scalar
    if not 0 <= scalar <= 1:  # 1 quantizes every weight in training too
        raise UsageError(f"{flag('quant_noise.scalar')} {scalar}: must be at least 0 and at most 1")


def check_adaptive_softmax(nested: Any) -> None:
    """Check the cutoffs, the dropout and the factor of adaptive softmax."""
    cutoff = utils.eval_str_list(nested.adaptive_softmax_cutoff, type=int)
    if any(later <= earlier for earlier, later in pairwise([0, *cutoff])):
        raise UsageError(f"--adaptive-softmax-cutoff {cutoff}: must be above 0 and ascending, such as 4000,20000")
    dropout, factor = nested.adaptive_softmax_dropout, nested.adaptive_softmax_factor
    if not 0 <= dropout < 1:
        raise UsageError(f"--adaptive-softmax-dropout {dropout}: must be at least 0 and less than 1")
    if not 0 < factor < math.inf:
        raise UsageError(f"--adaptive-softmax-factor {factor}: must be above 0 and finite, such as 4")


def check_compiled_layers(nested: Any) -> None:
    """Refuse options with which layers cannot be compiled: UsageError."""
    if not nested.compile_layers:
        return
    for name, value, unset in (
        ("--checkpoint-activations", nested.checkpoint_activations, False),
        (f"--quant-noise-pq {nested.quant_noise.pq}", nested.quant_noise.pq, 0),
        (f"--quant-noise-scalar {nested.quant_noise.scalar}", nested.quant_noise.scalar, 0),
        ("--luna-kernel triton", getattr(nested, "luna_kernel", "torch"), "torch"),
    ):
        if value != unset:
            raise UsageError(f"--compile-layers: cannot go with {name}; give one or the other")


def check_layers_to_keep(name: str, kept: str | None) -> None:
    """Check that ``kept`` is a list of layers; whether the checkpoint has them is checked when it is loaded."""
    layers = [part.strip() for part in kept.split(",")] if kept else []
    if not all(layer.isdecimal() for layer in layers) or len({*map(int, layers)}) < len(layers):
        raise UsageError(f"{flag(name)} {kept}: must be layer numbers from 0, separated by commas, such as 0,2,4")


def longest_text(task: Any) -> int:
    """The tokens of the longest text of a fairseq task, for a model that reads texts.

    Raises:
        UsageError: the task has sources and targets, or takes the length from the model.
    """
    settings: Any = getattr(task, "cfg", None) or getattr(task, "args", None)  # older kinds of tasks have args alone
    name = getattr(settings, "_name", None) or getattr(settings, "task", None)
    try:
        longest = task.max_positions() or settings.tokens_per_sample  # fairseq 0.12.2's masked_lm has no max_positions
    except AttributeError as error:
        raise UsageError(f"--task {name}: it has no longest text; give --max-positions, such as 512") from error
    if not isinstance(longest, int):
        raise UsageError(f"--task {name}: it has sources and targets, and this --arch reads texts; use another task")
    return longest
