"""Checkpoints that lack an entry: the history of the training, or the version of the layers."""

from typing import Any

import torch
from fairseq import checkpoint_utils
from fairseq.models import BaseFairseqModel
from fairseq.models.transformer import TransformerDecoderBase, TransformerEncoderBase
from torch import Tensor, nn

from fairseq_luna.compat.patch import Patch
from fairseq_luna.monkeypatch import wrap_method


class MissingHistory(Patch):
    """A checkpoint that was reduced for publishing, without the history of its training, cannot be read.

    fairseq treats a checkpoint without ``optimizer_history`` as one from 2018 and asks for its ``best_loss``, and needs
    the entries of ``extra_state`` (fairseq 0.12.2 and fairseq-fixed 0.12.3.1). With this patch a history that is
    missing, empty or None is an empty history, and a training that starts from the checkpoint begins with update 0 and
    epoch 1.
    """

    name = "history"
    summary = "checkpoints without the history of their training could not be read; they can"

    def is_needed(self) -> bool:
        """Whether a state without history is refused."""
        try:
            checkpoint_utils._upgrade_state_dict({"model": {}})
        except KeyError:
            return True
        return False

    def apply(self) -> None:
        @wrap_method(checkpoint_utils, "_upgrade_state_dict")
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


State = dict[str, Any]


# Entries of a checkpoint from before there was a history, which take its place.
OLDER = ("optimizer", "best_loss")


OLDER_EXTRA = ("epoch", "batch_offset", "val_loss")


def complete_extra_state(state: State) -> None:
    """Add the place at which a training begins, unless the state has one."""
    if state.get("extra_state") is None:
        state.pop("extra_state", None)
        if has_all(state, OLDER_EXTRA):
            return
    extra = state["extra_state"] = dict(state.get("extra_state") or {})
    if extra.get("train_iterator") is None and "epoch" not in extra:
        extra["train_iterator"] = {"epoch": 1, "iterations_in_epoch": 0}


def has_all(state: State, names: tuple[str, ...]) -> bool:
    return all(name in state for name in names)


class MissingVersion(Patch):
    """A pre-norm model loses the norms after its last layers when a state dict has no "version".

    fairseq treats such a state as one from 2018, when there were no such norms, and removes them from the model,
    although the state has them. Its own mean of parameters (--store-ema) leaves "version" out, and so do other
    programs: the model then silently computes something else (fairseq 0.12.2 and fairseq-fixed 0.12.3.1). With this
    patch a norm that the state has is kept.
    """

    name = "final-norms"
    summary = "final norms were removed from pre-norm models whose state has no version; norms that it has are kept"

    def is_needed(self) -> bool:
        """Whether a norm is removed although the state dict, which has no "version", contains it."""
        return any(map(_is_lost, (TransformerEncoderBase, TransformerDecoderBase)))

    def apply(self) -> None:
        # After the method of the whole model, which may have renamed the state's tensors.
        @wrap_method(BaseFairseqModel, "upgrade_state_dict")
        def upgrade_state_dict(original: Any, self: BaseFairseqModel, state_dict: dict[str, Tensor]) -> Any:
            norms = [
                (name, stack, stack.layer_norm)
                for name, stack in self.named_modules()
                if "version" in stack._buffers and getattr(stack, "layer_norm", None) is not None
            ]
            upgraded = original(self, state_dict)
            for name, stack, norm in norms:
                if stack.layer_norm is None and f"{name}.layer_norm.weight" in state_dict:
                    stack.layer_norm, stack.normalize = norm, True
                    state_dict[f"{name}.version"] = stack.version
            return upgraded


def _is_lost(kind: type[nn.Module]) -> bool:
    """Whether the final norm of such a stack of layers is removed."""
    model = BaseFairseqModel()
    stack: Any = kind.__new__(kind)  # without layers, which would draw random numbers
    nn.Module.__init__(stack)
    model.stack = stack
    stack.layers, stack.num_layers, stack.share_input_output_embed = nn.ModuleList(), 0, True
    stack.embed_positions = None  # fairseq 0.12.2 looks at it
    stack.layer_norm = nn.LayerNorm(1)
    stack.register_buffer("version", torch.Tensor([3]))
    model.upgrade_state_dict({f"stack.layer_norm.{name}": value for name, value in stack.layer_norm.named_parameters()})
    return stack.layer_norm is None
