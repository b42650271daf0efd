"""A training that has ended trains on when it is started again: fairseq asks for --max-update after an update only.

It then writes one update more over the last and the best checkpoint. That happens to a run that a scheduler starts
again because it was killed after its last save, and to every run that is started again to be sure that it has ended.
"""

import functools
import logging
from typing import Any

from fairseq import checkpoint_utils
from fairseq.trainer import Trainer

from fairseq_luna.compat.patch import Patch

logger = logging.getLogger(__name__)

# An epoch that every epoch comes after; 0 is the host's "no limit".
_NO_EPOCH = -1


def is_needed() -> bool:
    """Always: no version looks, and to try one would take a training."""
    return True


def has_ended(trainer: Trainer) -> bool:
    """Whether the trainer, with its checkpoint loaded, has all the updates that it was told to make."""
    max_update: int = trainer.cfg.optimization.max_update
    return 0 < max_update <= trainer.get_num_updates()


def apply() -> None:
    original_load = checkpoint_utils.load_checkpoint

    @functools.wraps(original_load)
    def load_checkpoint(cfg: Any, trainer: Trainer, **kwargs: Any) -> Any:
        loaded = original_load(cfg, trainer, **kwargs)
        if has_ended(trainer):
            done, limit = trainer.get_num_updates(), trainer.cfg.optimization.max_update
            logger.info("%s updates have been made, and --max-update is %s: nothing is left to do", done, limit)
            trainer.cfg.optimization.max_epoch = _NO_EPOCH
        return loaded

    checkpoint_utils.load_checkpoint = load_checkpoint


PATCH = Patch(
    "finished", is_needed, apply, "a training that had ended made one update more when started again; it makes none"
)
