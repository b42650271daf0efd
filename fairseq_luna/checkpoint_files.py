"""Reading a checkpoint as fairseq does, with torch's weights_only, so that no code in the file is run."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fairseq import checkpoint_utils
from omegaconf import OmegaConf
from torch import Tensor

from . import models  # noqa: F401 (lets torch load what fairseq's checkpoints hold)
from .model_files import check_file
from .model_settings import settings_of_function
from .models.shared.state_dict_loading import UNTRAINED_COPY
from .usage_error import UsageError

# Versions and a buffer of fairseq, and copies of weights.
NO_PARAMETER = re.compile(rf"\.(version|_float_tensor)$|{UNTRAINED_COPY.pattern}")


def read_checkpoint(path: Path, *, plain: bool = False) -> dict[str, Any]:
    """A checkpoint without its optimizer state, as fairseq reads it; ``model`` is a dict of tensors.

    Args:
        plain: convert ``cfg`` from omegaconf to a plain dict.

    Raises:
        UsageError: the file is missing, damaged, no checkpoint, or could run code.
    """
    check_file(path, "checkpoint")
    try:
        state = checkpoint_utils.load_checkpoint_to_cpu(str(path))
    # fairseq reads the content without checking it.
    except (AttributeError, LookupError, RuntimeError, TypeError) as error:
        raise UsageError(f"{path}: has no model; give a checkpoint that fairseq-train saved") from error
    state.pop("last_optimizer_state", None)
    model, cfg = state.get("model"), state.get("cfg")
    if not isinstance(model, dict) or not model or not all(isinstance(weight, Tensor) for weight in model.values()):
        raise UsageError(f"{path}: has no model; give a checkpoint that fairseq-train saved")
    # fairseq makes a config of older settings, which are a namespace, and of any text.
    if not (OmegaConf.is_dict(cfg) and "model" in cfg) and state.get("args") is None:
        raise UsageError(f"{path}: has no settings of its training; give a checkpoint that fairseq-train saved")
    if plain and cfg is not None:
        state["cfg"] = OmegaConf.to_container(state["cfg"], resolve=True, enum_to_str=True)
    return state


def architecture(state: Mapping[str, Any]) -> dict[str, Any]:
    """The settings that determine what a model computes, as far as the checkpoint has them."""
    return settings_of_function((state.get("cfg") or {}).get("model"))


def check_finite(path: Path, weights: Mapping[str, Tensor]) -> None:
    """Raises UsageError if a number of the checkpoint ``path`` is infinite or none, as after a diverged training."""
    for name, weight in weights.items():
        if not (NO_PARAMETER.search(name) or weight.isfinite().all()):
            kind = "NaN" if weight.isnan().any() else "an infinite number"
            raise UsageError(
                f"{path}: there is {kind} in {name}, so the training probably diverged; use another checkpoint"
            )
