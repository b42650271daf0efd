"""Settings that determine what a model computes, and how two models differ in them."""

import re
from argparse import Namespace
from collections.abc import Mapping
from typing import Any

from .older_names import with_current_names

Settings = dict[str, Any]

# Settings that change the training, or how fast a model is, but not the function of a trained model.
TRAINING_ONLY = re.compile(
    r"drop|quant_noise|checkpoint_activations|offload|min_params_to_wrap|max_.*positions|_path$|^random_blocks$"
    r"|^redraw_features$|^span_penalty$|^luna_kernel$|^compile_layers$|^alignment_|^load_checkpoint_heads$|^export$"
)
# Settings that the names, sizes and values of the tensors show.
_IN_TENSORS = re.compile(r"_dim$|_layers$|layers_to_keep$|share|(^|_)(un)?tie_|^merge_|^adaptive_")
# Settings of a classification head, which a checkpoint without one does not have.
_OF_HEADS = re.compile(r"^pool")
# A model registered without a dataclass is saved with the whole command line; these of its flags are the model's.
_MODEL_FLAGS = re.compile(
    r"(encoder|decoder|share|activation)_|(arch|layernorm_embedding|cross_self_attention)$"
    r"|no_(scale_embedding|token_positional_embeddings|cross_attention|decoder_final_norm)$"
)


def settings_as_dict(settings: Any) -> Settings:
    """A part of a checkpoint's settings as a dictionary; the part is a mapping, a Namespace or None."""
    return dict(vars(settings) if isinstance(settings, Namespace) else settings or {})


def settings_of_function(model: Any) -> Settings:
    """The settings that determine what a model computes, as far as its config ``model`` has them.

    Args:
        model: flat: a mapping, a namespace with a whole command line, or None.
    """
    if isinstance(model, Namespace):
        model = {name: value for name, value in vars(model).items() if _MODEL_FLAGS.match(name)}
    return {name: value for name, value in with_current_names(model or {}).items() if not TRAINING_ONLY.search(name)}


def differing_settings(saved: Any, current: Any, *, heads: bool = True) -> dict[str, tuple[Any, Any]]:
    """The settings in which two models of the same tensors compute something else, each with both values.

    A setting that only one of them has is compared with its default, for checkpoints written before the setting
    existed, and for fairseq's transformer compared with a model of this package. The first difference is ``_name``, if
    the two models have different classes.

    Args:
        saved, current: configs, as in :func:`settings_of_function`.
        heads: whether settings of classification heads count.
    """
    both = settings_of_function(saved), settings_of_function(current)
    names = [settings.get("_name") or settings.get("arch") for settings in both]
    defaults = [_defaults(name) for name in names]
    different = {}
    for name in {**both[1], **both[0]}:
        if name in ("_name", "arch") or _IN_TENSORS.search(name) or (_OF_HEADS.match(name) and not heads):
            continue
        their, our = (
            _setting_value(name, {**other, **settings})
            for settings, other in zip(both, reversed(defaults), strict=True)
        )
        if their != our and str(their) != str(our):  # a command line and a YAML may have 8 and "8"
            different[name] = their, our
    if different and _model(names[0]) is not _model(names[1]):
        return {"_name": (names[0], names[1]), **different}
    return different


def _setting_value(name: str, settings: Mapping[str, Any]) -> Any:
    value = settings.get(name)
    return settings.get(name.replace("_projected_", "_")) if value is None else value  # luna's packed heads


def _defaults(name: str | None) -> Settings:
    from fairseq.models import MODEL_DATACLASS_REGISTRY

    return with_current_names(vars(MODEL_DATACLASS_REGISTRY[name]())) if name in MODEL_DATACLASS_REGISTRY else {}


def _model(name: str | None) -> Any:
    from fairseq.models import ARCH_MODEL_REGISTRY, MODEL_REGISTRY

    return ARCH_MODEL_REGISTRY.get(name) or MODEL_REGISTRY.get(name) or name
