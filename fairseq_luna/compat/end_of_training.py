"""The end of a training: one update too many when it is started again, and an abort when Python exits."""

import atexit
import contextlib
import importlib.util
import logging
import queue
import time
from threading import Thread
from types import ModuleType, SimpleNamespace
from typing import Any, NoReturn
from unittest.mock import patch
from weakref import WeakSet

import torch
from fairseq import checkpoint_utils
from fairseq.data.iterators import BufferedIterator
from fairseq.logging import metrics

from fairseq_luna.compat.patch import Patch
from fairseq_luna.monkeypatch import wrap_method

logger = logging.getLogger(__name__)


class UpdateAfterLast(Patch):
    """A finished training makes one more update when it is started again.

    fairseq compares the number of updates with --max-update only after an update. The additional update is written over
    the last and the best checkpoint (fairseq 0.12.2 and fairseq-fixed 0.12.3.1). With this patch such a run ends
    without training.
    """

    name = "finished"
    summary = "a finished training made one more update when started again; it makes none"

    def is_needed(self) -> bool:
        """Whether fairseq-train begins an epoch although the trainer has made --max-update updates."""

        def begin(**_: Any) -> NoReturn:
            raise _TrainingBegan

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
            except _TrainingBegan:
                return True
        return False

    def apply(self) -> None:
        @wrap_method(checkpoint_utils, "load_checkpoint")
        def load_checkpoint(original: Any, cfg: Any, trainer: Any, **kwargs: Any) -> Any:
            loaded = original(cfg, trainer, **kwargs)
            done, limit = trainer.get_num_updates(), trainer.cfg.optimization.max_update
            if 0 < limit <= done:
                logger.info("training has finished: %s updates, --max-update %s", done, limit)
                trainer.cfg.optimization.max_epoch = _NO_EPOCH
            return loaded


# fairseq trains while the next epoch's number is at most --max-epoch; it takes 0 for "no limit".
_NO_EPOCH = -1


class _TrainingBegan(Exception):
    """Raised where fairseq would draw the first batch."""


def _fairseq_train() -> ModuleType:
    """A copy of ``fairseq_cli.train`` for the probe: the module itself configures logging and may be ``__main__``."""
    spec = importlib.util.find_spec("fairseq_cli.train")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    with patch.object(logging, "basicConfig"):
        spec.loader.exec_module(module)
    return module


class AbortAtExit(Patch):
    """A run that stops in the middle of an epoch leaves a thread that is still making batches.

    If Python exits while this thread is inside torch, the process aborts with "terminate called without an active
    exception" and exit status 134 after a successful training (fairseq 0.12.2 and fairseq-fixed 0.12.3.1). With this
    patch the threads are stopped and joined before Python exits.
    """

    name = "exit"
    summary = "a thread still making batches could abort the process at exit; it is stopped before"

    def is_needed(self) -> bool:
        """Whether the thread of a half-read iterator outlives the iterator.

        CUDA is hidden from it and not initialized.
        """
        buffered = BufferedIterator(1, range(4))
        with patch.object(torch.cuda, "is_available", return_value=False):
            next(buffered)
        consumer = buffered._consumer
        del buffered
        outlives = consumer.is_alive()
        stop(consumer)
        return outlives

    def apply(self) -> None:
        @wrap_method(BufferedIterator, "_create_consumer")
        def _create_consumer(original: Any, self: BufferedIterator) -> None:
            original(self)
            _consumers.add(self._consumer)

        atexit.register(stop_all)


# A thread that waits for a dead worker must not keep the process from exiting.
_TIMEOUT_S = 10.0


_consumers: WeakSet[Thread] = WeakSet()


def stop(consumer: Thread) -> None:
    """Let a consumer end after its current batch, and make room in its queue for this batch."""
    consumer._max_len = 0  # type: ignore[attr-defined]
    deadline = time.monotonic() + _TIMEOUT_S
    while consumer.is_alive() and time.monotonic() < deadline:
        with contextlib.suppress(queue.Empty):
            consumer._queue.get_nowait()  # type: ignore[attr-defined]
        consumer.join(0.01)


def stop_all() -> None:
    for consumer in list(_consumers):
        stop(consumer)
