"""A flat config made from fairseq's nested TransformerConfig.

A nested model config cannot be set from fairseq's command line: one version stops with an override error, the other
ignores ``--encoder-layers`` and similar flags. A flat one works with argparse and with hydra; the model builds the
nested one from it.
"""

import dataclasses
import sys
from argparse import SUPPRESS, Namespace
from collections.abc import Mapping
from enum import Enum
from typing import Any, Optional

from fairseq.dataclass import ChoiceEnum, FairseqDataclass
from fairseq.models.transformer.transformer_config import (
    DecoderConfig,
    EncDecBaseConfig,
    QuantNoiseConfig,
    TransformerConfig,
)

from ...older_names import renamed
from .checks import REFUSED, check_alignment, check_rates, check_refused, check_sizes

PARTS = {"encoder": EncDecBaseConfig, "decoder": DecoderConfig, "quant_noise": QuantNoiseConfig}

# Sizes that default to another field, resolved in this order.
FOLLOWS = {
    "decoder_embed_dim": "encoder_embed_dim",
    "decoder_ffn_embed_dim": "encoder_ffn_embed_dim",
    "decoder_input_dim": "decoder_embed_dim",
    "decoder_output_dim": "decoder_embed_dim",
}

# fairseq's parser recognises optional types only in this spelling.
OptionalInt = Optional[int]  # noqa: UP045
OptionalStr = Optional[str]  # noqa: UP045


def option(annotation: Any, default: Any, text: str) -> tuple[Any, Any]:
    """The type and the field of one option, for ``flat_config``'s ``extra``."""
    return annotation, dataclasses.field(default=default, metadata={"help": text})


# What fairseq has in transformer_align, for every family.
ALIGNMENT = {
    "alignment_layer": option(
        OptionalInt, None, "decoder layer whose attention to the source is the alignment, from 0 (default: the last)"
    ),
    "alignment_heads": option(OptionalInt, None, "how many heads of it are averaged, from the first (default: all)"),
}


SEARCHES = ["fairseq", "recorded"]
# How a model translates; it may be changed after the training, with --model-overrides.
SEARCH = {
    "search": option(
        ChoiceEnum(SEARCHES),
        "fairseq",
        "beam search in generation and in validation with --eval-bleu: fairseq's, or one with the same results whose"
        " tokens a GPU replays as one recorded graph",
    ),
}

# fairseq's transformer has it too.
RECORD_TRAINING = {
    "record_training": option(
        bool,
        False,
        "on a GPU, record the forward and backward pass of each shape of batches as one CUDA graph and replay it; give"
        " --num-batch-buckets too, so that shapes are few",
    ),
}


def convolution(*, older_name: str | None = None) -> dict[str, tuple[Any, Any]]:
    """The option of every family for a convolution, and a name that it once had, which is not shown."""
    text = "kernel size of a convolution before each self-attention, an odd number; 0: no convolution"
    older = {older_name: option(OptionalInt, None, SUPPRESS)} if older_name else {}
    return {"attention_kernel_size": option(int, 0, text), **older}


def transformer_options(defaults: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    """The options of fairseq's transformer that ``defaults`` names, flat, with these defaults."""
    return {
        name: option(annotation, defaults[name], spec.metadata["help"])
        for name, (annotation, spec) in _transformer_options().items()
        if name in defaults
    }


def config_of(module: str, name: str, options: Mapping[str, tuple[Any, Any]], base: type = FairseqDataclass) -> type:
    """Make a dataclass with these options, those of ``base`` first, for the variable ``name`` of ``module``."""
    fields = [(key, annotation, spec) for key, (annotation, spec) in options.items()]
    config = dataclasses.make_dataclass(name, fields, bases=(base,))
    config.__module__ = module  # pickle looks for it there
    return config


def flat_config(
    module: str, name: str, extra: Mapping[str, tuple[Any, Any]], follows: Mapping[str, str] = FOLLOWS
) -> type:
    """Make a FairseqDataclass with the fields of TransformerConfig, flat, of the options above and of ``extra``.

    Args:
        module, name: where it is kept; see :func:`config_of`.
        extra: further fields.
        follows: maps fields that default to None to the field whose value they then take; see :func:`nested_config`.
    """
    options = {**_transformer_options(), **ALIGNMENT, **SEARCH, **RECORD_TRAINING, **extra}
    for key, source in follows.items():
        options[key] = option(OptionalInt, None, f"{key.replace('_', ' ')} (default: {source.replace('_', ' ')})")
    return config_of(module, name, options)


def with_other_defaults(config: type, name: str, defaults: Mapping[str, Any]) -> type:
    """Make a dataclass called ``name``, in the module of ``config``: its fields, some with these ``defaults``."""
    fields = {field.name: field for field in dataclasses.fields(config)}
    options = {key: option(fields[key].type, value, fields[key].metadata["help"]) for key, value in defaults.items()}
    made = config_of(config.__module__, name, options, base=config)
    setattr(sys.modules[config.__module__], name, made)
    return made


def nested_config(flat: type, cfg: Any, follows: Mapping[str, str] = FOLLOWS) -> Any:
    """Build the TransformerConfig of a flat config, with all sizes filled in.

    Args:
        flat: the dataclass from :func:`flat_config`.
        cfg: an instance of it, or a namespace or DictConfig with its fields. A missing field gets its default, so that
            checkpoints written before a flag existed can be loaded.
        follows: as given to :func:`flat_config`.
    """
    values = vars(flat())
    for key in values:
        if (key in cfg) if hasattr(cfg, "__contains__") else hasattr(cfg, key):
            value = getattr(cfg, key)
            # Members of fairseq's enumerations of choices cannot be pickled, and no model that keeps one.
            values[key] = str(value) if isinstance(value, Enum) else value
    values = renamed(values)
    for key, source in follows.items():
        if values[key] is None:
            values[key] = values[source]
    return TransformerConfig.from_namespace(Namespace(**values))


def checked_config(
    flat: type,
    cfg: Any,
    *,
    follows: Mapping[str, str] = FOLLOWS,
    refused: Mapping[str, tuple[Any, str]] = REFUSED,
    rates: tuple[str, ...] = (),
) -> Any:
    """The nested config of :func:`nested_config`, checked for what no encoder-decoder of this package can use.

    Args:
        flat, cfg, follows: see :func:`nested_config`.
        refused: unsupported options; see :data:`.checks.REFUSED`.
        rates: further fields that hold a probability.

    Raises:
        UsageError: names the flag, its value and what to do.
    """
    nested = nested_config(flat, cfg, follows)
    check_refused(nested, refused)
    check_sizes(nested)
    check_alignment(nested)
    check_rates(nested, *rates)
    return nested


def _transformer_options() -> dict[str, tuple[Any, Any]]:
    """The options of fairseq's transformer, flat."""
    options = {}
    for field in dataclasses.fields(TransformerConfig):
        part = PARTS.get(field.name)
        for each in dataclasses.fields(part) if part else [field]:
            name = f"{field.name}_{each.name}" if part else field.name
            # fairseq declares a list of int and reads a string such as "0,2,4".
            annotation = OptionalStr if name.endswith("_layers_to_keep") else each.type
            if each.name != "_name":
                options[name] = annotation, dataclasses.field(default=each.default, metadata=dict(each.metadata))
    return options
