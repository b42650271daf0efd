"""Processing a corpus in several processes, in order, with a bounded number of lines in memory."""

import multiprocessing
import os
import signal
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from itertools import chain
from pathlib import Path
from threading import Thread
from typing import TypeVar

from ...command_line import CommandError
from ...progress import progress_bar
from ...text_files import batched, count_lines, read_lines

LINES_AT_ONCE = 2000
T = TypeVar("T")
R = TypeVar("R")


def in_order(function: Callable[[T], R], items: Iterable[T], *, workers: int) -> Iterator[R]:
    """``map`` in ``workers`` processes; reads at most two items per worker ahead, where Pool.imap reads all.

    Raises:
        CommandError: a worker was killed.
    """
    if workers == 1:
        yield from map(function, items)
        return
    # Forking would copy the locks that the progress bar's thread holds.
    pool = ProcessPoolExecutor(workers, multiprocessing.get_context("spawn"), _start_worker)
    waiting: deque[Future[R]] = deque()
    try:
        for item in items:
            waiting.append(pool.submit(function, item))
            if len(waiting) > 2 * workers:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    except BrokenProcessPool as error:
        message = "a worker was killed, probably because memory ran out: run again with fewer --workers"
        raise CommandError(message, status=1) from error
    finally:
        pool.shutdown(cancel_futures=True)


def _start_worker() -> None:
    """Leave Ctrl-C to the main process, and end when it is killed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def transform(
    function: Callable[[list[str]], list[str]], source: Path, target: Path, *, what: str, workers: int
) -> None:
    """Write ``function`` of the lines of a plain file, one line for each, to ``target``."""
    chunks = batched(progress_bar(read_lines(source), what, count_lines(source)), LINES_AT_ONCE)
    with target.open("w", encoding="utf-8", newline="\n") as file:
        for lines in in_order(function, chunks, workers=workers):
            file.writelines(f"{line}\n" for line in lines)


def count_words(source: Path, *, workers: int) -> "Counter[str]":
    """How often each word, between white space, is in a plain file."""
    lines, total = count_lines(source), Counter[str]()
    chunks = batched(progress_bar(read_lines(source), "counting", lines), LINES_AT_ONCE)
    for counts in in_order(_count_words, chunks, workers=workers if lines > LINES_AT_ONCE else 1):
        total.update(counts)
    return total


def _count_words(lines: list[str]) -> "Counter[str]":
    return Counter(chain.from_iterable(line.split() for line in lines))


def available_cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
