"""Settings of the old model, and of the new model, which has the old one's sizes."""

import dataclasses
from argparse import SUPPRESS, ArgumentParser, Namespace
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from fairseq.models import ARCH_CONFIG_REGISTRY, ARCH_MODEL_REGISTRY, MODEL_REGISTRY
from fairseq.models.transformer import TransformerModelBase

from ...model_settings import TRAINING_ONLY
from ...models.shared.config import FOLLOWS, FlatTransformerConfig, OptionalInt
from ...models.shared.model import FlatConfigModel
from ...older_names import with_current_names
from ...usage_error import UsageError, flag

Settings = dict[str, Any]

# The options of fairseq's transformer, which all families have.

SHARED = vars(FlatTransformerConfig())
WHOLE_NUMBERS = {field.name for field in dataclasses.fields(FlatTransformerConfig) if field.type in (int, OptionalInt)}
# Applied already, or read a file.
DONE = ("encoder_layers_to_keep", "decoder_layers_to_keep", "encoder_embed_path", "decoder_embed_path")


def add_model_flags(parser: ArgumentParser, arch: str) -> None:
    """Add the flags of the model ``arch``; a flag that is not given is not in the result of the parser.

    Raises:
        UsageError: this package has no such encoder-decoder.
    """
    available = [name for name, model in ARCH_MODEL_REGISTRY.items() if issubclass(model, FlatConfigModel)]
    if arch not in available:
        raise UsageError(f"--arch {arch}: choose one of {', '.join(available)}")
    group = parser.add_argument_group("flags of the model, only those that the checkpoint does not determine")
    group.argument_default = SUPPRESS
    ARCH_MODEL_REGISTRY[arch].add_args(group)


def old_settings(path: Path, state: Mapping[str, Any]) -> Settings:
    """The model's settings in the checkpoint ``state``, with its architecture as ``_name``.

    Raises:
        UsageError: it has none, or is not of an encoder-decoder like fairseq's transformer.
    """
    settings = (state.get("cfg") or {}).get("model") or {}
    settings = dict(vars(settings) if isinstance(settings, Namespace) else settings)
    name = settings.get("_name") or settings.get("arch")
    model = ARCH_MODEL_REGISTRY.get(name) or MODEL_REGISTRY.get(name)
    if model is None or not issubclass(model, TransformerModelBase):
        raise UsageError(f"{path}: its --arch is {name}; give a checkpoint of a transformer or of this package")
    preset = Namespace(**settings)
    ARCH_CONFIG_REGISTRY.get(name, lambda _: None)(
        preset
    )  # settings that did not exist yet when the checkpoint was saved
    kept = {side: getattr(preset, f"{side}_layers_to_keep", None) for side in ("encoder", "decoder")}
    layers = {f"{side}_layers": len(numbers.split(",")) for side, numbers in kept.items() if numbers}
    return with_defaults(
        with_ints({**with_current_names(vars(preset)), **layers, **dict.fromkeys(DONE), "_name": name})
    )


def new_settings(arch: str, options: Mapping[str, Any], old: Settings, path: Path) -> Settings:
    """All settings of the new model.

    The first of these that has a setting decides: ``options``; ``arch``, for settings that the transformer does not
    have; the old model; the defaults.

    Raises:
        UsageError: a given one contradicts the checkpoint ``path``.
    """
    options = with_current_names(options)
    for name, value in options.items():
        if name in SHARED and name in old and not TRAINING_ONLY.search(name) and value != old[name]:
            raise UsageError(f"{flag(name)} {value}: it is {old[name]} in {path}; leave it out")
    defaults = defaults_of(arch)
    own = {name: value for name, value in preset_of(arch).items() if name not in SHARED}
    inherited = {name: value for name, value in old.items() if name in defaults}
    return {**defaults, **inherited, **own, **options, "_name": arch}


def training_flags(arch: str, settings: Settings) -> Iterator[str]:
    """The flags that set ``settings`` in fairseq-train, beside ``--arch``."""
    unset = with_defaults({**defaults_of(arch), **preset_of(arch)})
    for name, value in with_defaults(settings).items():
        follows = name in FOLLOWS and value == settings.get(FOLLOWS[name])
        if name != "_name" and value != unset.get(name) and value is not None and not follows:
            shown = ",".join(map(str, value)) if isinstance(value, Sequence) and not isinstance(value, str) else value
            yield flag(name) if value is True else f"{flag(name)}={shown}"


def settings_to_verify(settings: Settings) -> Settings:
    """Settings that do not show in the tensors, so that loading has to compare them."""
    left_out = ["_name", *FOLLOWS]
    if settings["share_all_embeddings"]:
        left_out.append("share_decoder_input_output_embed")  # fairseq shares them then
    return {name: value for name, value in settings.items() if name not in left_out and not TRAINING_ONLY.search(name)}


def with_ints(settings: Settings) -> Settings:
    """``settings`` with int for text: fairseq's parser leaves a number that defaults to another flag as text."""
    texts = {name for name in WHOLE_NUMBERS if isinstance(settings.get(name), str)}
    return {name: int(value) if name in texts else value for name, value in settings.items()}


def defaults_of(arch: str) -> Settings:
    return with_current_names(vars(ARCH_MODEL_REGISTRY[arch].__dataclass()))


def preset_of(arch: str) -> Settings:
    """The settings that ``arch`` sets."""
    preset = Namespace()
    ARCH_CONFIG_REGISTRY[arch](preset)
    return vars(preset)


def with_defaults(settings: Settings) -> Settings:
    """``settings`` with every size that defaults to another one filled in."""
    settings = dict(settings)
    for name, source in FOLLOWS.items():
        if settings.get(name) is None:
            settings[name] = settings.get(source)
    return settings
