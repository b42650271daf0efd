"""fairseq's records are shown where they are asked for: by ``LOGLEVEL``, its own switch, or a level of its logger."""

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def fairseq() -> Iterator[None]:
    """Without fairseq's records below a warning."""
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
