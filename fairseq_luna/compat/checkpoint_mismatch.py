"""Checkpoints of another model: the tensors do not fit, or a flag differs."""

import logging
import os
from argparse import Namespace
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any, NoReturn
from unittest.mock import patch

from fairseq import checkpoint_utils, trainer
from fairseq.trainer import Trainer

from fairseq_luna.compat.patch import Patch
from fairseq_luna.compat.recorded_reads import recorded_reads
from fairseq_luna.model_settings import differing_settings
from fairseq_luna.monkeypatch import wrap_method
from fairseq_luna.older_names import with_current_names
from fairseq_luna.usage_error import CheckpointMismatch, UsageError, flag

logger = logging.getLogger(__name__)


class HiddenMismatch(Patch):
    """A checkpoint does not fit the model: fairseq hides the model's own error, or does not name the file.

    ``Trainer.load_checkpoint`` replaces every error of ``load_state_dict`` by "please ensure that the architectures
    match"; ``load_model_ensemble_and_task`` leaves out the file's name (fairseq 0.12.2 and fairseq-fixed 0.12.3.1).
    With this patch a CheckpointMismatch, which names tensors, reaches the user with the file's name and the flags that
    differ. A checkpoint that ``fairseq-luna convert`` wrote for other flags is refused, and so is the state of another
    schedule, or of an optimizer of other parameters, with the flag that leaves it out. A checkpoint that fits a model
    with other flags, such as another number of heads, is loaded with a warning that names them. Other errors are
    unchanged.
    """

    name = "mismatch"
    summary = (
        "fairseq hides why a checkpoint does not fit the model; tensors, the flags that differ and the file are named"
    )

    def is_needed(self) -> bool:
        """Whether the trainer hides a model's CheckpointMismatch."""

        def load_state_dict(*_: Any, **__: Any) -> NoReturn:
            raise CheckpointMismatch("probe")

        stub = SimpleNamespace(
            data_parallel_world_size=1,
            data_parallel_rank=0,
            tpu=False,
            is_fsdp=False,
            model=SimpleNamespace(load_state_dict=load_state_dict),
            cfg=SimpleNamespace(
                checkpoint=SimpleNamespace(load_checkpoint_on_all_dp_ranks=False),
                distributed_training=SimpleNamespace(use_sharded_state=False, zero_sharding="none"),
                model=None,
            ),
        )
        with (
            patch.object(checkpoint_utils, "load_checkpoint_to_cpu", lambda *_, **__: {"model": {}}),
            patch.object(trainer.logger, "disabled", True),
        ):
            try:
                Trainer.load_checkpoint(stub, __file__)
            except CheckpointMismatch:
                return False
            except Exception as error:
                return isinstance(error.__context__, CheckpointMismatch)
        return False

    def apply(self) -> None:
        @wrap_method(Trainer, "load_checkpoint")
        def load_checkpoint(original: Any, self: Trainer, filename: str, *args: Any, **kwargs: Any) -> Any:
            try:
                with recorded_reads() as checkpoints:
                    extra_state = original(self, filename, *args, **kwargs)
            except (LookupError, ValueError) as error:
                advice = _flag_that_resets(error, self)
                if advice is None:
                    raise
                raise UsageError(f"{filename} {advice}") from error
            except Exception as error:
                if not isinstance(error.__context__, CheckpointMismatch):
                    raise
                different = both_values(model_config(filename), self.cfg.model)
                raise CheckpointMismatch(f"{filename} {error.__context__}{different}") from error
            check_made_for((extra_state or {}).get(MADE_FOR) or {}, self.cfg.model, filename)
            for checkpoint in checkpoints:
                model = getattr(checkpoint.cfg, "model", None)
                warn_of_different_settings(model, self.cfg.model, filename, heads=checkpoint.has_heads)
            return extra_state

        @wrap_method(checkpoint_utils, "load_model_ensemble_and_task")
        def load_model_ensemble_and_task(
            original: Any,
            filenames: list[str],
            arg_overrides: Mapping[str, Any] | None = None,
            *args: Any,
            **kwargs: Any,
        ) -> Any:
            try:
                return original(filenames, arg_overrides, *args, **kwargs)
            except CheckpointMismatch as error:
                different = both_values(model_config(filenames[0]), arg_overrides)
                raise CheckpointMismatch(f"{':'.join(filenames)} {error}{different}") from error


# The entry in the extra_state of a converted checkpoint: the settings of its model.
MADE_FOR = "made_for"


def _flag_that_resets(error: Exception, trainer: Trainer) -> str | None:
    """The advice for a state of a schedule or of an optimizer that cannot be loaded; None for another error."""
    if isinstance(error, KeyError) and error.args[0] in trainer.lr_scheduler.state_dict():
        schedule = trainer.cfg.lr_scheduler._name
        return (
            f"holds no state of --lr-scheduler {schedule} ({error.args[0]!r} is missing): give --reset-lr-scheduler, or"
            " --reset-optimizer if another program than this saved it"
        )
    if isinstance(error, IndexError) and not trainer._optim_history:
        return "holds an optimizer's state without the history of its training: give --reset-optimizer"
    if isinstance(error, ValueError) and "optimizer's group" in str(error):
        return "holds an optimizer's state of other parameters than the model's: give --reset-optimizer"
    return None


def model_config(filename: str) -> Any:
    """The model's config in a checkpoint, flat; None if it is not known, as for a checkpoint in several files."""
    if not os.path.exists(filename):
        return None
    return getattr(checkpoint_utils.load_checkpoint_to_cpu(filename).get("cfg"), "model", None)


def both_values(saved: Any, current: Any) -> str:
    """The flags that have other values in the checkpoint, each with both values.

    Rates of dropout are left out: they need not fit. ``saved`` and ``current`` are models' configs, flat, or a part of
    one;
    None: not known.
    """
    saved, current = _as_dict(saved), _as_dict(current)
    return "".join(
        f"; {flag(name)} is {saved[name]} there and {value} here"
        for name, value in current.items()
        if name in saved and str(saved[name]) != str(value) and "drop" not in name
    )


def warn_of_different_settings(saved: Any, current: Any, filename: str, *, heads: bool) -> None:
    """Warn if a model has the tensors of the checkpoint ``filename`` and computes something else from them.

    Args:
        saved, current: models' configs, flat; None: not known.
        heads: whether the checkpoint has classification heads.
    """
    different = differing_settings(saved, current, heads=heads) if saved and current else {}
    if different:
        differences = "".join(
            f"; {flag(name)} is {there} there and {here} here" for name, (there, here) in different.items()
        )
        logger.warning(f"{filename} fits the model, but was trained as another{differences}")


def check_made_for(made_for: Mapping[str, Any], current: Any, filename: str) -> None:
    """Raise CheckpointMismatch unless the model's config ``current`` has the values ``made_for``.

    Other attentions may have the same tensors: without this check a model would be trained from a checkpoint that was
    converted for another attention.
    """
    made_for, current = _as_dict(made_for), _as_dict(current)
    other = [f"{flag(name)}={value}" for name, value in made_for.items() if current.get(name) != value]
    if other:
        raise CheckpointMismatch(
            f"{filename} was made for {', '.join(other[:3])}: give the flags that fairseq-luna convert printed"
        )


def _as_dict(cfg: Any) -> dict[str, Any]:
    return with_current_names(vars(cfg) if isinstance(cfg, Namespace) else cfg or {})
