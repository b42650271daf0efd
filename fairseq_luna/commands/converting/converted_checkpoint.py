"""A checkpoint of the new model from a checkpoint of the old one, and the table of where its parameters come from."""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch

from ...checkpoint_files import read_checkpoint
from ...compat.checkpoint_mismatch import MADE_FOR
from ...dictionary_fingerprints import FINGERPRINTS, recorded_fingerprints
from .converted_settings import new_settings, old_settings, settings_to_verify, training_flags
from .parameters import ParameterOrigin, build, convert_parameters, load_old


class ConvertedCheckpoint(NamedTuple):
    """The new checkpoint, the lines of the table of its parameters, and the flags of fairseq-train for its model."""

    state: dict[str, Any]
    table: list[str]
    flags: list[str]


def convert_checkpoint(path: Path, arch: str, options: Mapping[str, Any], *, seed: int) -> ConvertedCheckpoint:
    """Convert the checkpoint ``path`` to the model ``arch``, without an optimizer state.

    Args:
        path: a checkpoint of fairseq's transformer, or of an encoder-decoder of this package.
        arch: the architecture of the new model.
        options: settings of the new model that ``path`` does not determine.
        seed: random seed of new parameters.

    Raises:
        UsageError: ``path`` cannot be read or is of another model, or a setting cannot be used.
    """
    state = read_checkpoint(path, plain=True)
    before = old_settings(path, state)
    settings = new_settings(arch, options, before, path)
    old = load_old(before, state["model"], path)
    torch.manual_seed(seed)
    new = build(settings, state["model"])
    table = list(lines_of_table(*convert_parameters(old, new)))
    new_state = {
        "args": None,
        "cfg": {**state["cfg"], "model": settings},
        "model": new.state_dict(),
        "criterion": state.get("criterion"),
        "optimizer_history": [{**last, "num_updates": 0} for last in state["optimizer_history"][-1:]],
        "extra_state": {
            "train_iterator": {"epoch": 1, "iterations_in_epoch": 0},
            MADE_FOR: settings_to_verify(settings),
            FINGERPRINTS: recorded_fingerprints(state.get("extra_state")),
        },
    }
    return ConvertedCheckpoint(new_state, table, [f"--arch={arch}", *training_flags(arch, settings)])


def lines_of_table(parts: Sequence[ParameterOrigin], unused_parts: Iterable[ParameterOrigin]) -> Iterator[str]:
    """A line for each kind of parameter and origin, the layers of a side together; the sum; and what is left out."""
    kinds: Counter[tuple[str, str]] = Counter()
    for part in parts:
        kinds[_parameter_kind(part.name), part.origin] += part.numel
    width = max(len(kind) for kind, _ in kinds)
    for (kind, origin), numbers in kinds.items():
        yield f"{kind:{width}}  {numbers:12,}  {origin}"
    copied, all_numbers = sum(part.numel for part in parts if part.is_copied), sum(part.numel for part in parts)
    yield f"{copied:,} of {all_numbers:,} numbers are taken over ({copied / all_numbers:.1%})"
    left_out: Counter[str] = Counter()
    for part in unused_parts:
        left_out[_parameter_kind(part.name)] += part.numel
    for kind, numbers in left_out.items():
        yield f"left out: {kind}  {numbers:,}"


def _parameter_kind(name: str) -> str:
    """``name`` without the number of its layer and without ``weight`` or ``bias``."""
    return re.sub(r"\.\d+\.", ".*.", re.sub(r"\.(weight|bias)$", "", name))
