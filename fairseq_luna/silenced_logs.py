"""Context managers that silence fairseq's log, or all logs."""

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def silence_fairseq() -> Iterator[None]:
    """Silence fairseq's log below warnings, unless ``LOGLEVEL`` (fairseq's switch) or its logger has a level."""
    logger = logging.getLogger("fairseq")
    if "LOGLEVEL" in os.environ or logger.level != logging.NOTSET:
        yield
        return
    logger.setLevel(logging.WARNING)
    try:
        yield
    finally:
        logger.setLevel(logging.NOTSET)


@contextmanager
def restore_root_logger() -> Iterator[None]:
    """Undo what an import of fairseq does to the root logger: every library's debug messages would be shown."""
    root = logging.getLogger()
    level, handlers = root.level, list(root.handlers)
    try:
        yield
    finally:
        if "LOGLEVEL" not in os.environ:
            root.setLevel(level)
            root.handlers[:] = handlers


@contextmanager
def silence_all_loggers(level: int) -> Iterator[None]:
    """Silence messages of ``level`` and below, of every logger."""
    before = logging.root.manager.disable
    logging.disable(max(before, level))
    try:
        yield
    finally:
        logging.disable(before)
