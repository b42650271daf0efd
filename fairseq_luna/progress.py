"""Progress of a command, on stderr."""

import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from threading import Event, Thread
from time import monotonic
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from tqdm import tqdm

T = TypeVar("T")


def progress_bar(items: Iterable[T], description: str, total: int | None = None, unit: str = " lines") -> "tqdm[T]":
    """Yield ``items`` with a progress bar, if stderr is a terminal."""
    from tqdm import tqdm

    return tqdm(items, desc=f"  {description}", total=total, unit=unit, unit_scale=True, disable=None)


@contextmanager
def show_elapsed_time(activity: str) -> Iterator[None]:
    """Print ``what`` the block does, for work of unknown length. A terminal also shows the seconds that have passed."""
    start, finished = monotonic(), Event()

    def show(end: str) -> None:
        print(f"\r  {activity}: {monotonic() - start:.0f} s", end=end, file=sys.stderr, flush=True)

    def watch() -> None:
        while not finished.wait(1):
            show("")

    watcher = Thread(target=watch, daemon=True) if sys.stderr.isatty() else None
    print(f"  {activity} ...", end="" if watcher else "\n", file=sys.stderr, flush=True)
    if watcher:
        watcher.start()
    try:
        yield
    finally:
        finished.set()
        if watcher:
            watcher.join()
            show("\n")
