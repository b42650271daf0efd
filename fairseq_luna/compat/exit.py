"""A run that stops in the middle of an epoch leaves a thread that is still making batches.

If Python exits while that thread is inside torch, the process aborts with "terminate called without an active
exception" and exit status 134 after a successful training (fairseq 0.12.2 and fairseq-fixed 0.12.3.1). With this patch
the threads are stopped and joined before Python exits.
"""

import atexit
import contextlib
import queue
import time
from threading import Thread
from typing import Any
from unittest.mock import patch
from weakref import WeakSet

import torch
from fairseq.data.iterators import BufferedIterator

from fairseq_luna.replacing import replaces

SUMMARY = "a thread still making batches could abort the process at exit; it is stopped before"

# A thread that waits for a dead worker must not keep the process from exiting.
_TIMEOUT_S = 10.0

_consumers: WeakSet[Thread] = WeakSet()


def is_needed() -> bool:
    """Whether the thread of a half-read iterator outlives the iterator. CUDA is hidden from it and not initialised."""
    buffered = BufferedIterator(1, range(4))
    with patch.object(torch.cuda, "is_available", return_value=False):
        next(buffered)
    consumer = buffered._consumer
    del buffered
    outlives = consumer.is_alive()
    stop(consumer)
    return outlives


def stop(consumer: Thread) -> None:
    """Let a consumer end after its current batch, and make room in its queue for that batch."""
    consumer._max_len = 0  # type: ignore[attr-defined]
    deadline = time.monotonic() + _TIMEOUT_S
    while consumer.is_alive() and time.monotonic() < deadline:
        with contextlib.suppress(queue.Empty):
            consumer._queue.get_nowait()  # type: ignore[attr-defined]
        consumer.join(0.01)


def stop_all() -> None:
    for consumer in list(_consumers):
        stop(consumer)


def apply() -> None:
    @replaces(BufferedIterator, "_create_consumer")
    def _create_consumer(original: Any, self: BufferedIterator) -> None:
        original(self)
        _consumers.add(self._consumer)

    atexit.register(stop_all)
