"""A checkpoint that was made small for publishing, without the history of its training, cannot be read.

fairseq takes one without ``optimizer_history`` for one of 2018 and asks for its ``best_loss``, and needs the entries of
``extra_state`` (fairseq 0.12.2 and fairseq-fixed 0.12.3.1). With this patch a history that is missing, empty or None is
an empty one, and a training that starts from the checkpoint begins with update 0 and epoch 1.
"""

from typing import Any

from fairseq import checkpoint_utils

from fairseq_luna.replacing import replaces

SUMMARY = "checkpoints without the history of their training could not be read; they can"

State = dict[str, Any]
# What a checkpoint has in the place of a history if it is from before there was one.
OLDER = ("optimizer", "best_loss")
OLDER_EXTRA = ("epoch", "batch_offset", "val_loss")


def is_needed() -> bool:
    """Whether a state without history is refused."""
    try:
        checkpoint_utils._upgrade_state_dict({"model": {}})
    except KeyError:
        return True
    return False


def apply() -> None:
    @replaces(checkpoint_utils, "_upgrade_state_dict")
    def upgrade_state_dict(original: Any, state: State) -> State:
        if not isinstance(state, dict):  # no checkpoint
            return original(state)
        complete_extra_state(state)
        if state.get("optimizer_history"):
            last = state["optimizer_history"][-1]
            if "best_loss" not in last:
                last.setdefault("lr_scheduler_state", {"best": None})
            return original(state)
        if has_all(state, OLDER):
            state.pop("optimizer_history", None)
            return original(state)
        upgraded = original({**state, "optimizer_history": [{"lr_scheduler_state": {"best": None}}]})
        return {**upgraded, "optimizer_history": []}


def complete_extra_state(state: State) -> None:
    """Add where a training begins, unless the state says where one is."""
    if state.get("extra_state") is None:
        state.pop("extra_state", None)
        if has_all(state, OLDER_EXTRA):
            return
    extra = state["extra_state"] = dict(state.get("extra_state") or {})
    if extra.get("train_iterator") is None and "epoch" not in extra:
        extra["train_iterator"] = {"epoch": 1, "iterations_in_epoch": 0}


def has_all(state: State, names: tuple[str, ...]) -> bool:
    return all(name in state for name in names)
