"""A training of a few seconds with fairseq-train: its flags, its log and its result.

It has several epochs, a warm-up, two milestones, validation, and a checkpoint every few updates.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

from fairseq_luna.commands.shell_commands import USER_DIR
from tiny_training import UNTRAINED

MAX_UPDATE = 30
SAVE_INTERVAL = 3
# Nine updates an epoch; each update depends on the last one through Apollo's state and the random numbers.
_RECIPE = (
    *("--batch-size=7", "--required-batch-size-multiple=1", "--criterion=label_smoothed_cross_entropy"),
    *("--optimizer=apollo", "--lr=0.02", "--weight-decay=1e-6", "--clip-norm=1"),
    *("--lr-scheduler=milestone", "--warmup-updates=10", "--milestones=17,24", f"--max-update={MAX_UPDATE}"),
    *(f"--save-interval-updates={SAVE_INTERVAL}", "--keep-interval-updates=2", "--no-epoch-checkpoints"),
    *("--cpu", "--log-format=json", "--log-interval=1"),
)
_CLOCKS = ("wps", "ups", "train_wall", "wall", "train_wps", "train_ups", "train_train_wall", "train_wall", "valid_wps")


def arguments(data: str, save_dir: Path, arch: str, more: Sequence[str] = ()) -> list[str]:
    """The arguments of fairseq-train; ``more`` is appended and overrides the recipe."""
    return [data, f"--user-dir={USER_DIR}", f"--save-dir={save_dir}", f"--arch={arch}", *_RECIPE, *more]


def logged(log: str) -> dict[tuple[str, str], dict[str, str]]:
    """The logged updates and validations by (kind, update), without times and speeds."""
    return {
        (kind, record[update]): {name: value for name, value in record.items() if name not in _CLOCKS}
        for kind, update in (("train_inner", "num_updates"), ("valid", "valid_num_updates"))
        for record in _records(log, kind)
    }


def updates(caplog: pytest.LogCaptureFixture) -> list[dict[str, str]]:
    """The logged updates of trainings in this process, with --log-format=json; clears the log."""
    records = [json.loads(record.message) for record in caplog.records if record.name == "train_inner"]
    caplog.clear()
    return [{name: value for name, value in record.items() if name not in _CLOCKS} for record in records]


def _records(log: str, kind: str) -> Iterator[dict[str, Any]]:
    for line in log.splitlines():
        _, found, record = line.partition(f" | {kind} | {{")
        if found and record.endswith("}"):  # the last line of a killed process may be incomplete
            yield json.loads("{" + record)


def updates_in(checkpoint: Path) -> int:
    """The number of updates in the checkpoint; 0 if the file does not exist."""
    if not checkpoint.exists():
        return 0
    return load(checkpoint)["optimizer_history"][-1]["num_updates"]


def load(checkpoint: Path) -> dict[str, Any]:
    return torch.load(checkpoint, weights_only=True)


def outcome(checkpoint: Path) -> dict[str, Any]:
    """All that a resumed training depends on, by name: parameters, optimizer state, rate, position in the data."""
    state = load(checkpoint)
    extra = state["extra_state"]
    # The history has an entry for each start of the training.
    kept = {"model": state["model"], "optimizer": state["last_optimizer_state"], "now": state["optimizer_history"][-1]}
    found = _flat({**kept, **{name: extra[name] for name in ("train_iterator", "val_loss", "best")}}, "")
    return {name: value for name, value in found if not UNTRAINED.search(name)}


def _flat(value: Any, name: str) -> Iterator[tuple[str, Any]]:
    if isinstance(value, Mapping | list | tuple):
        for key, part in value.items() if isinstance(value, Mapping) else enumerate(value):
            yield from _flat(part, f"{name}/{key}")
    else:
        yield name, value


def differing(ours: Mapping[str, Any], theirs: Mapping[str, Any]) -> list[str]:
    """The names whose values differ in any bit."""

    def same(name: str) -> bool:
        if name not in ours or name not in theirs:
            return False
        mine, other = ours[name], theirs[name]
        return torch.equal(mine, other) if torch.is_tensor(mine) and torch.is_tensor(other) else mine == other

    return sorted(name for name in ours.keys() | theirs.keys() if not same(name))
