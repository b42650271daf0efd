"""A finished training makes one more update when it is started again.

fairseq compares the number of updates with --max-update only after an update. The additional one is written over the
last and the best checkpoint (fairseq 0.12.2 and fairseq-fixed 0.12.3.1). With this patch such a run ends without
training.
"""

import importlib.util
import logging
from types import ModuleType, SimpleNamespace
from typing import Any, NoReturn
from unittest.mock import patch

from fairseq import checkpoint_utils
from fairseq.logging import metrics

from fairseq_luna.replacing import replaces

SUMMARY = "a finished training made one more update when started again; it makes none"

logger = logging.getLogger(__name__)

# fairseq trains while the next epoch's number is at most --max-epoch; it takes 0 for "no limit".
_NO_EPOCH = -1


class _Trains(Exception):
    """Raised where fairseq would draw the first batch."""


def is_needed() -> bool:
    """Whether fairseq-train begins an epoch although the trainer has made --max-update updates."""

    def begin(**_: Any) -> NoReturn:
        raise _Trains

    cfg = SimpleNamespace(
        distributed_training=SimpleNamespace(fix_batches_to_gpus=False),
        dataset=SimpleNamespace(curriculum=0),
        optimization=SimpleNamespace(max_update=1, stop_time_hours=0),
    )
    trainer = SimpleNamespace(get_num_updates=lambda: 1, cumulative_training_time=lambda: 0, cfg=cfg)
    epochs = SimpleNamespace(next_epoch_itr=begin, next_epoch_idx=1, epoch=1)
    with metrics.aggregate(new_root=True):
        try:
            _fairseq_train().train(cfg, trainer, None, epochs)
        except _Trains:
            return True
    return False


def _fairseq_train() -> ModuleType:
    """A copy of ``fairseq_cli.train`` for the probe: the module itself configures logging and may be ``__main__``."""
    spec = importlib.util.find_spec("fairseq_cli.train")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    with patch.object(logging, "basicConfig"):
        spec.loader.exec_module(module)
    return module


def apply() -> None:
    @replaces(checkpoint_utils, "load_checkpoint")
    def load_checkpoint(original: Any, cfg: Any, trainer: Any, **kwargs: Any) -> Any:
        loaded = original(cfg, trainer, **kwargs)
        done, limit = trainer.get_num_updates(), trainer.cfg.optimization.max_update
        if 0 < limit <= done:
            logger.info("training has finished: %s updates, --max-update %s", done, limit)
            trainer.cfg.optimization.max_epoch = _NO_EPOCH
        return loaded
