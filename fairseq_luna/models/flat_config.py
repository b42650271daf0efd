"""A flat config made from fairseq's nested TransformerConfig.

fairseq cannot take a nested model config from the command line: one version stops with an override error, the
other ignores ``--encoder-layers`` and its like. A flat one works from argparse and from hydra alike; the model
builds the nested one from it.
"""

import dataclasses
from argparse import Namespace
from collections.abc import Mapping
from typing import Any, Optional

from fairseq.dataclass import FairseqDataclass
from fairseq.models.transformer.transformer_config import (
    DecoderConfig,
    EncDecBaseConfig,
    QuantNoiseConfig,
    TransformerConfig,
)

PARTS = {"encoder": EncDecBaseConfig, "decoder": DecoderConfig, "quant_noise": QuantNoiseConfig}

# Sizes that are taken from another field when they are not given; in this order.
FOLLOWS = {
    "decoder_embed_dim": "encoder_embed_dim",
    "decoder_ffn_embed_dim": "encoder_ffn_embed_dim",
    "decoder_input_dim": "decoder_embed_dim",
    "decoder_output_dim": "decoder_embed_dim",
}

# fairseq's parser knows an optional type by this spelling alone.
OptionalInt = Optional[int]  # noqa: UP045
OptionalStr = Optional[str]  # noqa: UP045

FieldSpec = tuple[str, Any, Any]


def option(annotation: Any, default: Any, text: str) -> tuple[Any, Any]:
    """The type and the field of one option, for ``flat_config``'s ``extra``."""
    return annotation, dataclasses.field(default=default, metadata={"help": text})


def flat_config(name: str, extra: Mapping[str, tuple[Any, Any]], follows: Mapping[str, str]) -> type:
    """A FairseqDataclass called ``name`` with every field of TransformerConfig, flat, and those of ``extra``.

    ``follows`` names fields that are None unless given and then equal another one; see :func:`nested_config`.
    """
    fields = {spec[0]: spec for spec in _transformer_fields()}
    fields.update({key: (key, annotation, spec) for key, (annotation, spec) in extra.items()})
    for key, source in follows.items():
        text = f"{key.replace('_', ' ')} (default: {source.replace('_', ' ')})"
        fields[key] = (key, OptionalInt, dataclasses.field(default=None, metadata={"help": text}))
    return dataclasses.make_dataclass(name, list(fields.values()), bases=(FairseqDataclass,))


def nested_config(flat: type, cfg: Any, follows: Mapping[str, str]) -> Any:
    """The TransformerConfig of a flat config, every size filled in.

    Args:
        flat: the dataclass that :func:`flat_config` made.
        cfg: one of them, or a namespace or DictConfig with its fields. A field that it lacks gets its default, so
            that a checkpoint written before a flag existed can be built.
        follows: as given to :func:`flat_config`.
    """
    values = vars(flat())
    for key in values:
        if (key in cfg) if hasattr(cfg, "__contains__") else hasattr(cfg, key):
            values[key] = getattr(cfg, key)
    for key, source in follows.items():
        if values[key] is None:
            values[key] = values[source]
    return TransformerConfig.from_namespace(Namespace(**values))


def _transformer_fields() -> list[FieldSpec]:
    specs: list[FieldSpec] = []
    for field in dataclasses.fields(TransformerConfig):
        if field.name == "_name":
            continue
        if field.name in PARTS:
            part = PARTS[field.name]
            specs += [_copy(sub, f"{field.name}_{sub.name}") for sub in dataclasses.fields(part) if sub.name != "_name"]
        else:
            specs.append(_copy(field, field.name))
    return specs


def _copy(field: Any, name: str) -> FieldSpec:
    # Declared a list of int, but read as "0,2,4" wherever fairseq uses it.
    annotation = OptionalStr if name.endswith("_layers_to_keep") else field.type
    return name, annotation, dataclasses.field(default=field.default, metadata=dict(field.metadata))
