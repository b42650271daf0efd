"""A checkpoint of the new model from one of the old."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import torch

from ...compat.checkpoint_mismatch import MADE_FOR
from .. import checkpoints
from .parameters import build, convert, load_old
from .report import lines_of_table
from .settings import deciding, flags_of, new_settings, old_settings


class Converted(NamedTuple):
    """The new checkpoint, where its parameters come from, and the flags of fairseq-train for its model."""

    state: dict[str, Any]
    table: list[str]
    flags: list[str]


def converted(path: Path, arch: str, given: Mapping[str, Any], *, seed: int) -> Converted:
    """The model ``arch`` with the parameters of the checkpoint ``path``, without an optimizer state.

    Args:
        path: of fairseq's transformer, or of an encoder-decoder of this package.
        arch: of the new model.
        given: its settings that ``path`` does not determine.
        seed: of the parameters that start at random.

    Raises:
        UsageError: ``path`` cannot be read or is of another model, or a setting cannot be used.
    """
    state = checkpoints.load(path)
    before = old_settings(path, state)
    settings = new_settings(arch, given, before, path)
    old = load_old(before, state["model"], path)
    torch.manual_seed(seed)
    new = build(settings, state["model"])
    table = list(lines_of_table(*convert(old, new)))
    made = {
        "args": None,
        "cfg": {**state["cfg"], "model": settings},
        "model": new.state_dict(),
        "criterion": state.get("criterion"),
        "optimizer_history": [{**last, "num_updates": 0} for last in state["optimizer_history"][-1:]],
        "extra_state": {"train_iterator": {"epoch": 1, "iterations_in_epoch": 0}, MADE_FOR: deciding(settings)},
    }
    return Converted(made, table, [f"--arch={arch}", *flags_of(arch, settings)])
