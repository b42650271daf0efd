"""The flat config of all encoder-decoders, made from fairseq's nested TransformerConfig.

A nested model config cannot be set from fairseq's command line: one version stops with an override error, the other
ignores ``--encoder-layers`` and similar flags. A flat one works with argparse and with hydra; the model builds the
nested one from it.
"""
# fairseq makes the type of an option with choices by a call:
# mypy: disable-error-code="valid-type"

import dataclasses
from argparse import SUPPRESS, Namespace
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Optional

from fairseq.dataclass import ChoiceEnum, FairseqDataclass
from fairseq.models.transformer.transformer_config import (
    DecoderConfig,
    EncDecBaseConfig,
    QuantNoiseConfig,
    TransformerConfig,
)

from ...older_names import with_current_names
from .flag_checks import (
    REFUSED,
    check_alignment,
    check_compiled_layers,
    check_probabilities,
    check_refused,
    check_sizes,
)

PARTS = {"encoder": EncDecBaseConfig, "decoder": DecoderConfig, "quant_noise": QuantNoiseConfig}

# Sizes that default to another field, resolved in this order.
FOLLOWS = {
    "decoder_embed_dim": "encoder_embed_dim",
    "decoder_ffn_embed_dim": "encoder_ffn_embed_dim",
    "decoder_input_dim": "decoder_embed_dim",
    "decoder_output_dim": "decoder_embed_dim",
}

# fairseq's parser recognizes optional types only in this spelling.
OptionalInt = Optional[int]  # noqa: UP045
OptionalStr = Optional[str]  # noqa: UP045

# Of a field for a name that an option once had: :mod:`...older_names` reads it, and no help shows it.
OLDER_NAME = {"help": SUPPRESS}

# The type and the dataclass field of an option, by its name.
Options = dict[str, tuple[Any, Any]]


def option(annotation: Any, default: Any, text: str) -> tuple[Any, Any]:
    """The type and the field of one option, for :func:`config_of`."""
    return annotation, field(default=default, metadata={"help": text})


def config_of(module: str, name: str, options: Mapping[str, tuple[Any, Any]], base: Any = FairseqDataclass) -> Any:
    """Make a dataclass of options that are data, such as the flags that attentions declare.

    Args:
        module, name: the variable that keeps the dataclass, where pickle looks for it.
        options: the fields to add.
        base: the dataclass whose fields come first.
    """
    fields = [(key, annotation, spec) for key, (annotation, spec) in options.items()]
    config = dataclasses.make_dataclass(name, fields, bases=(base,))
    config.__module__ = module
    return config


def declared_options(config: type, *, without: type = FairseqDataclass) -> Options:
    """The options of a dataclass that another, its base, does not have; for :func:`config_of`."""
    inherited = {each.name for each in dataclasses.fields(without)}
    return {
        each.name: (each.type, field(default=each.default, metadata=dict(each.metadata)))
        for each in dataclasses.fields(config)
        if each.name not in inherited
    }


def _transformer_options() -> Options:
    """The options of fairseq's transformer, flat: ``encoder.layers`` is ``encoder_layers``."""
    options = {}
    for outer in dataclasses.fields(TransformerConfig):
        part = PARTS.get(outer.name)
        for each in dataclasses.fields(part) if part else [outer]:
            name = f"{outer.name}_{each.name}" if part else outer.name
            # fairseq declares a list of int and reads a string such as "0,2,4".
            annotation = OptionalStr if name.endswith("_layers_to_keep") else each.type
            if each.name != "_name":
                options[name] = annotation, field(default=each.default, metadata=dict(each.metadata))
    return options


TRANSFORMER_OPTIONS = _transformer_options()
TRANSFORMER_METADATA = {name: dict(spec.metadata) for name, (_, spec) in TRANSFORMER_OPTIONS.items()}
_TransformerOptions: Any = config_of(__name__, "_TransformerOptions", TRANSFORMER_OPTIONS)

SEARCHES = ["fairseq", "recorded"]
# Of this package's models and of fairseq's transformer.
RECORD_TRAINING_HELP = (
    "on a GPU, record the forward and backward pass of each shape of batches as one CUDA graph and replay it; give"
    " --num-batch-buckets too, so that shapes are few"
)
Search = ChoiceEnum(SEARCHES)

COMPILE_LAYERS = {
    "help": "in training, compile each encoder and decoder layer with torch.compile; for a GPU, where it starts fewer"
    " kernels after some minutes of compiling; on a CPU it is slower"
}


@dataclass
class FlatTransformerConfig(_TransformerOptions):
    """The options of fairseq's transformer, flat, and the options that every encoder-decoder of this package adds.

    fairseq's options are generated from its TransformerConfig, because versions of fairseq differ in them.
    """

    decoder_embed_dim: OptionalInt = field(
        default=None, metadata={"help": "decoder embed dim (default: encoder embed dim)"}
    )
    decoder_ffn_embed_dim: OptionalInt = field(
        default=None, metadata={"help": "decoder ffn embed dim (default: encoder ffn embed dim)"}
    )
    decoder_input_dim: OptionalInt = field(
        default=None, metadata={"help": "decoder input dim (default: decoder embed dim)"}
    )
    decoder_output_dim: OptionalInt = field(
        default=None, metadata={"help": "decoder output dim (default: decoder embed dim)"}
    )
    # In fairseq only transformer_align has these two.
    alignment_layer: OptionalInt = field(
        default=None,
        metadata={"help": "decoder layer whose cross-attention is the alignment, from 0 (default: the last)"},
    )
    alignment_heads: OptionalInt = field(
        default=None, metadata={"help": "how many heads of it are averaged, from the first (default: all)"}
    )
    compile_layers: bool = field(default=False, metadata=COMPILE_LAYERS)
    # A model may be given another search after the training, with --model-overrides.
    search: Search = field(
        default="fairseq",
        metadata={
            "help": "beam search in generation and in validation with --eval-bleu: fairseq's, or one with the same"
            " results whose tokens a GPU replays as one recorded graph"
        },
    )
    record_training: bool = field(default=False, metadata={"help": RECORD_TRAINING_HELP})


@dataclass
class ConvolutionOptions(FairseqDataclass):
    """The option of a family whose self-attentions may follow a convolution."""

    attention_kernel_size: int = field(
        default=0,
        metadata={"help": "kernel size of a convolution before each self-attention, an odd number; 0: no convolution"},
    )


def convolution() -> Options:
    """The option of :class:`ConvolutionOptions`, for a config that is made of options."""
    return declared_options(ConvolutionOptions)


def flat_config(module: str, name: str, extra: Mapping[str, tuple[Any, Any]]) -> Any:
    """A :class:`FlatTransformerConfig` with options that are data; see :func:`config_of`."""
    return config_of(module, name, extra, base=FlatTransformerConfig)


def nested_config(flat: type, cfg: Any, follows: Mapping[str, str] = FOLLOWS) -> Any:
    """Build the TransformerConfig of a flat config, with all sizes filled in.

    Args:
        flat: the dataclass, such as :class:`FlatTransformerConfig`.
        cfg: an instance of it, or a namespace or DictConfig with its fields. A missing field gets its default, so that
            checkpoints written before a flag existed can be loaded.
        follows: maps fields that default to None to the field whose value they then take.
    """
    values = vars(flat())
    for key in values:
        if (key in cfg) if hasattr(cfg, "__contains__") else hasattr(cfg, key):
            value = getattr(cfg, key)
            # Members of fairseq's enumerations of choices cannot be pickled, and no model that keeps one.
            values[key] = str(value) if isinstance(value, Enum) else value
    values = with_current_names(values)
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
    probabilities: tuple[str, ...] = (),
) -> Any:
    """The nested config of :func:`nested_config`, checked for what no encoder-decoder of this package can use.

    Args:
        flat, cfg, follows: see :func:`nested_config`.
        refused: unsupported options; see :data:`.flag_checks.REFUSED`.
        probabilities: further fields that hold a probability.

    Raises:
        UsageError: names the flag, its value and what to do.
    """
    nested = nested_config(flat, cfg, follows)
    check_refused(nested, refused)
    check_sizes(nested)
    check_alignment(nested)
    check_probabilities(nested, *probabilities)
    check_compiled_layers(nested)
    return nested
