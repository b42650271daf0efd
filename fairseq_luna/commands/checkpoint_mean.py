"""Arithmetic mean of checkpoints, with at most two of them in memory."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from fairseq.models import MODEL_DATACLASS_REGISTRY
from torch import Tensor

from ..checkpoint_files import architecture, check_finite, read_checkpoint
from ..dictionary_fingerprints import dictionary_mismatch, recorded_fingerprints
from ..older_names import rename_parameters
from ..progress import progress_bar
from ..trained_languages import describe_languages, language_mismatch, languages
from ..usage_error import UsageError, flag

Weights = dict[str, Tensor]

# Places of weights in a checkpoint, by the prefix of their names here.
PLACES = {
    "": ("model",),
    "criterion": ("criterion",),
    "ema": ("extra_state", "ema"),
    "ema_fp32_params": ("extra_state", "ema_fp32_params"),
}
# Random directions, which are redrawn during training: the mean of several draws is not a draw.
RANDOM = ".directions"


def updates(state: Mapping[str, Any]) -> int:
    """Number of updates of a checkpoint; 0 if it does not say."""
    history = state.get("optimizer_history") or [{}]
    return int(history[-1].get("num_updates") or 0)


def average(paths: Sequence[Path]) -> dict[str, Any]:
    """Average checkpoints: the result is the last of ``paths`` with the mean of all models as its model.

    The means that --store-ema made, and a criterion's parameters, are averaged too.

    Sums are in fp64, or in fp32 for half precision; a mean has the dtype of its weights. Integers, booleans and random
    directions are the last checkpoint's. Tied weights stay tied. The optimizer state is left out, and
    ``extra_state["averaged_checkpoints"]`` names the files.

    Args:
        paths: at least one, each once.

    Raises:
        UsageError: a file cannot be read or holds a number that is not finite, or its model, languages or dictionaries
            differ from the first.
    """
    for number, path in enumerate(progress_bar(paths, "averaging", unit=" checkpoints")):
        state = read_checkpoint(path, plain=True)
        model = _remove_weights(state)
        check_finite(path, model)
        if number == 0:
            outline, shared, settings = _shapes_and_dtypes(model), _tied_weights(model), architecture(state)
            trained, fingerprints = _trained_languages(state), recorded_fingerprints(state.get("extra_state"))
            own = [name for name in shared if shared[name] == name and _has_mean(name, model[name])]
            sums = {name: model[name].to(_accumulation_dtype(model[name]), copy=True) for name in own}
        else:
            _check_settings(path, architecture(state), paths[0], settings)
            _check_data(path, state, paths[0], trained, fingerprints)
            trained = {**_trained_languages(state), **trained}  # as far as the checkpoints know them
            fingerprints = {**recorded_fingerprints(state.get("extra_state")), **fingerprints}
            _check_outline(path, _shapes_and_dtypes(model), paths[0], outline)
            _check_shared(path, model, paths[0], shared)
            for name, total in sums.items():
                total.add_(model[name])
        kept = {name: weight for name, weight in model.items() if not _has_mean(name, weight)}
        del model  # before the next is loaded
    means = {name: sums.pop(name).div_(len(paths)).to(outline[name][1]) for name in list(sums)}
    _restore_weights(state, {name: kept[name] if name in kept else means[shared[name]] for name in outline})
    extra_state = state.get("extra_state") or {}
    state["extra_state"] = {**extra_state, "averaged_checkpoints": [str(path) for path in paths]}
    return state


def _remove_weights(state: dict[str, Any]) -> Weights:
    """Remove the weights from ``state`` and return them, by current names."""
    weights = {}
    for label, place in PLACES.items():
        holder = _innermost_dict(state, place)
        if holder.get(place[-1]):
            weights.update({f"{label} {name}".lstrip(): weight for name, weight in holder.pop(place[-1]).items()})
    rename_parameters(weights)
    return weights


def _restore_weights(state: dict[str, Any], weights: Weights) -> None:
    for name, weight in weights.items():
        label, _, name = name.rpartition(" ")
        place = PLACES[label]
        _innermost_dict(state, place).setdefault(place[-1], {})[name] = weight


def _innermost_dict(state: dict[str, Any], place: tuple[str, ...]) -> dict[str, Any]:
    for key in place[:-1]:
        state = state.get(key) or {}
    return state


def _has_mean(name: str, weight: Tensor) -> bool:
    return weight.is_floating_point() and not name.endswith(RANDOM)


def _accumulation_dtype(weight: Tensor) -> torch.dtype:
    return torch.float32 if weight.dtype in (torch.float16, torch.bfloat16) else torch.float64


def _shapes_and_dtypes(model: Weights) -> dict[str, tuple[tuple[int, ...], torch.dtype]]:
    return {name: (tuple(weight.shape), weight.dtype) for name, weight in model.items()}


def _tied_weights(model: Weights) -> dict[str, str]:
    """For each name, the first name of the same tensor in memory: another name if weights are tied."""
    first: dict[Any, str] = {}
    return {name: first.setdefault(_memory_layout(weight), name) for name, weight in model.items()}


def _memory_layout(weight: Tensor) -> tuple[Any, ...]:
    return weight.data_ptr(), weight.dtype, tuple(weight.shape), weight.stride()


def _check_settings(path: Path, entries: dict[str, Any], first: Path, first_entries: dict[str, Any]) -> None:
    """Raises UsageError if a setting differs. A setting that an older release did not save has its default."""
    defaults = MODEL_DATACLASS_REGISTRY.get(entries.get("_name"), object)()
    for name in sorted(entries.keys() | first_entries.keys()):
        mine, other = (settings.get(name, getattr(defaults, name, None)) for settings in (entries, first_entries))
        if mine != other:
            raise UsageError(f"{path}: its {flag(name)} is {mine}, and {other} in {first}")


ADVICE = "average checkpoints of one training"


def _trained_languages(state: Mapping[str, Any]) -> dict[str, str]:
    return languages(state.get("args") or (state.get("cfg") or {}).get("task"))


def _check_data(
    path: Path, state: Mapping[str, Any], first: Path, trained: dict[str, str], fingerprints: dict[str, str]
) -> None:
    """Raises UsageError if a checkpoint is known to have other languages or dictionaries than the first one."""
    if language_mismatch(trained, own := _trained_languages(state)):
        raise UsageError(
            f"{path}: was trained {describe_languages(own)}, and {first} {describe_languages(trained)}; {ADVICE}"
        )
    if mismatch := dictionary_mismatch(recorded_fingerprints(state.get("extra_state")), fingerprints):
        raise UsageError(
            f"{path}: {mismatch} of its training had other words than in the training of {first}; {ADVICE}"
        )


def _check_outline(path: Path, entries: dict[str, Any], first: Path, first_entries: dict[str, Any]) -> None:
    for name in dict.fromkeys([*first_entries, *entries]):
        if name not in entries or name not in first_entries:
            has_it, lacks_it = (path, first) if name in entries else (first, path)
            raise UsageError(f"{path}: has other weights than {first}: {name} is in {has_it} and not in {lacks_it}")
        for property_name, own_value, first_value in zip(
            ("shape", "dtype"), entries[name], first_entries[name], strict=True
        ):
            if own_value != first_value:
                raise UsageError(f"{path}: {name} has {property_name} {own_value}, and {first_value} in {first}")


def _check_shared(path: Path, model: Weights, first: Path, shared: dict[str, str]) -> None:
    """Raises UsageError if tensors that are tied in the first checkpoint differ here."""
    for name, other in shared.items():
        same = _memory_layout(model[name]) == _memory_layout(model[other])
        if not same and not torch.equal(model[name], model[other]):
            raise UsageError(f"{path}: {name} and {other} differ, but are one tensor in {first}")
