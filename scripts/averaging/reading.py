"""Reading a checkpoint as fairseq does, under torch's weights_only, so that nothing in the file is run."""

import argparse
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fairseq import checkpoint_utils
from omegaconf import OmegaConf
from torch import Tensor

import fairseq_luna  # noqa: F401 (declares safe what fairseq's checkpoints hold)
from shared.command import CommandError

# Settings that change the training but not the function of a trained model.
_TRAINING_ONLY = re.compile(
    r"drop|quant_noise|checkpoint_activations|offload|min_params_to_wrap|max_.*_positions|_path$"
)
# A model registered without a dataclass is saved with the whole command line; these of it are the model's.
_MODEL_FLAGS = re.compile(r"(encoder|decoder|share|activation)_|(arch|layernorm_embedding|cross_self_attention)$")


def load(path: Path) -> dict[str, Any]:
    """A checkpoint without its optimizer's state, ``model`` a dict of tensors and ``cfg`` of plain containers.

    Raises:
        CommandError: the file is missing, empty, cut off, no checkpoint, or holds what could run code.
    """
    if not path.is_file():
        raise CommandError(f"{path}: there is no such file")
    try:
        state = checkpoint_utils.load_checkpoint_to_cpu(str(path))
    except Exception as error:  # a broken file can raise anything, and what to do about it is the same
        raise CommandError(_reason(path, error)) from error
    state.pop("last_optimizer_state", None)
    model = state.get("model")
    if not isinstance(model, dict) or not model or not all(isinstance(weight, Tensor) for weight in model.values()):
        raise CommandError(f"{path}: it holds no model; give what fairseq-train saved")
    if OmegaConf.is_config(state.get("cfg")):
        state["cfg"] = OmegaConf.to_container(state["cfg"], resolve=True, enum_to_str=True)
    return state


def architecture(state: Mapping[str, Any]) -> dict[str, Any]:
    """The settings that decide what a model computes, as far as the checkpoint says."""
    settings = (state.get("cfg") or {}).get("model") or {}
    if isinstance(settings, argparse.Namespace):
        settings = {name: value for name, value in vars(settings).items() if _MODEL_FLAGS.match(name)}
    return {name: value for name, value in settings.items() if not _TRAINING_ONLY.search(name)}


def _reason(path: Path, error: Exception) -> str:
    first = next(iter(str(error).splitlines()), "")
    if first.startswith(str(path)):  # the plugin's own words, which say what is refused
        return first
    return f"{path} is no whole checkpoint ({type(error).__name__}: {first}): take another, or write it again"
