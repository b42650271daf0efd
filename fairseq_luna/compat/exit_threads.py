"""A run that stops in mid-epoch leaves a thread that is still making batches.

When Python exits while that thread is inside torch, unwinding it through C++ aborts the process: exit status
134 and "terminate called without an active exception" after a training that went well. Here the threads are
asked to stop, and awaited, before Python goes.
"""

import atexit
import contextlib
import queue
import time
from threading import Thread
from weakref import WeakSet

from fairseq.data.iterators import BufferedIterator

from fairseq_luna.compat.patch import Patch

# A thread that waits for a dead worker must not keep the process from ending.
_PATIENCE_S = 10.0

_consumers: WeakSet[Thread] = WeakSet()


def is_needed() -> bool:
    """Whether the thread behind a half-read iterator outlives the iterator."""
    buffered = BufferedIterator(1, range(4))
    next(buffered)
    consumer = buffered._consumer
    del buffered
    outlives = consumer.is_alive()
    stop(consumer)
    return outlives


def stop(consumer: Thread) -> None:
    """End a consumer: it leaves after the batch in hand, and finds room in its queue for that."""
    consumer._max_len = 0  # type: ignore[attr-defined]
    deadline = time.monotonic() + _PATIENCE_S
    while consumer.is_alive() and time.monotonic() < deadline:
        with contextlib.suppress(queue.Empty):
            consumer._queue.get_nowait()  # type: ignore[attr-defined]
        consumer.join(0.01)


def stop_all() -> None:
    for consumer in list(_consumers):
        stop(consumer)


def apply() -> None:
    original_create = BufferedIterator._create_consumer

    def _create_consumer(self: BufferedIterator) -> None:
        original_create(self)
        _consumers.add(self._consumer)

    BufferedIterator._create_consumer = _create_consumer
    atexit.register(stop_all)


PATCH = Patch("exit", is_needed, apply, "a thread still making batches could abort the process at exit; it is stopped")
