"""Writing a checkpoint to a full disk."""

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
from fairseq_luna.files import renamed_when_complete
from fairseq_luna.monkeypatch import wrap_method
from fairseq_luna.usage_error import UsageError

logger = logging.getLogger(__name__)


class InterruptedSaving(Patch):
    """A disk that fills up while a checkpoint is written can destroy the checkpoints that were there.

    fairseq copies the new checkpoint over checkpoint_last.pt and similar files in place, so that a failed copy leaves
    half a file; and when it retries a failed write, it continues in the same file after the first half (fairseq 0.12.2
    and fairseq-fixed 0.12.3.1). With this patch every file is written under a temporary name and then renamed, and a
    retry starts again. Saving needs room for one checkpoint more than are kept.
    """

    name = "saving"
    summary = "a full disk could destroy the last checkpoint; a checkpoint is replaced only by a complete one"

    def is_needed(self) -> bool:
        """Whether a copy is written into the file that it replaces."""
        try:
            with tempfile.TemporaryDirectory() as folder:
                new, old = (Path(folder) / name for name in ("new", "old"))
                new.write_text("new")
                old.write_text("old")
                file = old.stat().st_ino
                PathManager.copy(str(new), str(old), overwrite=True)
                return old.stat().st_ino == file
        except OSError:  # no writable folder for the probe: every known version copies in place
            return True

    def apply(self) -> None:
        @wrap_method(PathManager, "copy")
        def copy(original: Any, src_path: str, dst_path: str, overwrite: bool = False) -> Any:
            if not PathManager.supports_rename(dst_path):
                return original(src_path, dst_path, overwrite=overwrite)
            if os.path.exists(dst_path) and not overwrite:
                logger.error("%s was not copied: %s exists", src_path, dst_path)
                return False
            target = os.path.realpath(dst_path)  # a link stays a link
            try:
                with _complete_or_removed(target) as unfinished:
                    copied = original(src_path, unfinished, overwrite=True)
                    if not copied:
                        raise _NotCopied
            except _NotCopied:
                return copied
            return dst_path if copied == unfinished else copied

        @wrap_method(checkpoint_utils, "torch_persistent_save")
        def torch_persistent_save(original: Any, obj: Any, filename: str, async_write: bool = False) -> None:
            if async_write or not PathManager.supports_rename(filename):
                original(obj, filename, async_write=async_write)
                return
            with _complete_or_removed(filename) as unfinished:
                _save_with_retries(obj, unfinished)


# Seconds between the attempts to write: another program may be freeing space.
PAUSES_S = (2.5, 2.5)


_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


class _NotCopied(Exception):
    """fairseq's copy reported a failure by its return value, as iopath's does."""


@contextlib.contextmanager
def _complete_or_removed(target: str) -> Iterator[str]:
    """Yield the name of a file to write, which then replaces ``target``; after an error it is removed.

    Raises:
        UsageError: if the disk is full; other errors are unchanged.
    """
    unfinished = f"{target}.tmp"
    try:
        with renamed_when_complete(Path(unfinished), Path(target)):
            yield unfinished
    except BaseException as error:
        if not _is_full(error):
            raise
        first, *_ = str(error).split("\n")
        raise UsageError(
            f"{target} could not be written ({first}): free disk space and start the same command again, which resumes"
            " from the last checkpoint"
        ) from error


def _is_full(error: BaseException) -> bool:
    """Whether there was no space left. torch's zip writer raises a RuntimeError without the reason."""
    if isinstance(error, OSError):
        return error.errno in _FULL
    return isinstance(error, RuntimeError) and bool(re.search("PytorchStreamWriter|inline_container", str(error)))


def _save_with_retries(obj: Any, path: str) -> None:
    """Save ``obj``, again after each of PAUSES_S; the last error is raised."""
    for pause in (*PAUSES_S, None):
        try:
            with open(path, "wb") as file:
                torch.save(obj, file)
            return
        except Exception as error:  # fairseq retries after any error too
            if pause is None:
                raise
            logger.warning("%s: %s; trying again", path, str(error).split("\n")[0])
            time.sleep(pause)
