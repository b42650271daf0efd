"""What fairseq logs is shown where it is asked for: ``LOGLEVEL`` in the environment, or a level of its logger."""

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager


def asked_for() -> bool:
    """Whether the user wants fairseq's records; ``LOGLEVEL`` is fairseq's own switch."""
    return "LOGLEVEL" in os.environ or logging.getLogger("fairseq").level != logging.NOTSET


@contextmanager
def fairseq() -> Iterator[None]:
    """Without fairseq's records below a warning."""
    if asked_for():
        yield
        return
    logger = logging.getLogger("fairseq")
    logger.setLevel(logging.WARNING)
    try:
        yield
    finally:
        logger.setLevel(logging.NOTSET)


@contextmanager
def root_logger_kept() -> Iterator[None]:
    """An import of fairseq may show every library's debugging: it configures the root logger. That is undone."""
    root = logging.getLogger()
    level, handlers = root.level, list(root.handlers)
    try:
        yield
    finally:
        if "LOGLEVEL" not in os.environ:
            root.setLevel(level)
            root.handlers[:] = handlers
