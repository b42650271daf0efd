"""A disk that fills up while a checkpoint is written can cost the checkpoints that were there.

fairseq writes one file beside the old one and then renames it, but copies that over checkpoint_last.pt and its like in
place; a half-written copy is all that is left. And where it tries a failed write again, it goes on in the same file
behind the half that it has written, so that the file cannot be read. Here a save needs room for one checkpoint more
than are kept.
"""

import contextlib
import errno
import logging
import os
import re
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from fairseq import checkpoint_utils
from fairseq.file_io import PathManager

from fairseq_luna.compat.patch import Patch
from fairseq_luna.usage_error import UsageError

logger = logging.getLogger(__name__)

# Another program may be making room: wait between the attempts to write.
PAUSES_S = (2.5, 2.5)


_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def is_needed() -> bool:
    """Whether a copy is written into the file that it replaces."""
    try:
        with tempfile.TemporaryDirectory() as folder:
            new, old = (Path(folder) / name for name in ("new", "old"))
            new.write_text("new")
            old.write_text("old")
            file = old.stat().st_ino
            PathManager.copy(str(new), str(old), overwrite=True)
            return old.stat().st_ino == file
    except OSError:  # nowhere to try it: a copy in place is what every known version makes
        return True


def apply() -> None:
    original_copy, original_save = PathManager.copy, checkpoint_utils.torch_persistent_save

    def copy(src_path: str, dst_path: str, overwrite: bool = False) -> bool:
        if not PathManager.supports_rename(dst_path):
            return original_copy(src_path, dst_path, overwrite=overwrite)
        target = os.path.realpath(dst_path)  # a link stays one
        with _replacing(target) as unfinished:
            return original_copy(src_path, unfinished, overwrite=True)

    def torch_persistent_save(obj: Any, filename: str, async_write: bool = False) -> None:
        if async_write or not PathManager.supports_rename(filename):
            original_save(obj, filename, async_write=async_write)
            return
        with _replacing(filename) as unfinished:
            _write(obj, unfinished)

    PathManager.copy = staticmethod(copy)
    checkpoint_utils.torch_persistent_save = torch_persistent_save


@contextlib.contextmanager
def _replacing(target: str) -> Iterator[str]:
    """Give the name of a file to write, which then replaces ``target`` whole; no half of one is left behind.

    Raises:
        UsageError: where the disk is full; any other error as it came.
    """
    unfinished = f"{target}.tmp"
    try:
        yield unfinished
        os.replace(unfinished, target)
    except BaseException as error:
        with contextlib.suppress(OSError):
            os.remove(unfinished)
        if not _is_full(error):
            raise
        first, *_ = str(error).split("\n")
        raise UsageError(
            f"{target} could not be written ({first}): make room on the disk and start again, which goes on from the"
            " last checkpoint"
        ) from error


def _is_full(error: BaseException) -> bool:
    """Whether there was no room; torch's writer does not say why it could not write, but where."""
    if isinstance(error, OSError):
        return error.errno in _FULL
    return isinstance(error, RuntimeError) and bool(re.search("PytorchStreamWriter|inline_container", str(error)))


def _write(obj: Any, path: str) -> None:
    for pause in (*PAUSES_S, None):
        try:
            with open(path, "wb") as file:
                torch.save(obj, file)
            return
        except Exception as error:  # as the host does
            if pause is None:
                raise
            logger.warning("%s: %s; trying again", path, str(error).split("\n")[0])
            time.sleep(pause)


PATCH = Patch(
    "saving", is_needed, apply, "a full disk could cost the last checkpoint; none is replaced before it is whole"
)
