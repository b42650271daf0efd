"""torch >= 2.6 loads only tensors and plain containers, and fairseq's checkpoints contain a few more classes."""

import argparse
import errno
import functools
import io
import logging
import pickle
import re
import zipfile
from collections.abc import Callable
from pathlib import Path
from traceback import extract_tb
from typing import Any

import numpy
import torch
from fairseq import checkpoint_utils
from fairseq.distributed import utils as distributed_utils

from fairseq_luna.compat.patch import Patch
from fairseq_luna.monkeypatch import wrap_method
from fairseq_luna.usage_error import UsageError

logger = logging.getLogger(__name__)


class RefusedClasses(Patch):
    """Checkpoints of fairseq contain classes that torch >= 2.6 refuses to load.

    Without this patch no checkpoint of a model without a dataclass config, and none that was trained with --eval-bleu,
    can be loaded (fairseq 0.12.2 and fairseq-fixed 0.12.3.1). It declares these classes safe. Everything else is still
    refused, because unpickling it could execute code. A refused or a damaged file raises a UsageError with the file's
    name, and so does a file whose arguments name a model or a task that is not registered, where fairseq raises
    KeyError. A torch whose own reader has a known fault gives a warning.
    """

    name = "checkpoints"
    summary = "torch >= 2.6 refuses fairseq's checkpoints; the classes that fairseq stores in them are declared safe"

    def is_needed(self) -> bool:
        """Whether torch refuses the classes that fairseq's checkpoints contain."""
        return is_refused([argparse.Namespace(), numpy.zeros(1), numpy.zeros(1, dtype="int64"), numpy.float64(0)])

    def apply(self) -> None:
        torch.serialization.add_safe_globals(_SAFE)

        @wrap_method(checkpoint_utils, "load_checkpoint_to_cpu")
        def load_checkpoint_to_cpu(original: Any, path: str, *args: Any, **kwargs: Any) -> dict[str, Any]:
            _warn_once_about(torch.__version__)
            try:
                return original(path, *args, **kwargs)
            except KeyError as error:
                if not any(frame.name == "convert_namespace_to_omegaconf" for frame in extract_tb(error.__traceback__)):
                    raise
                raise UsageError(
                    f"{path} was saved by another program: its {error.args[0]!r} is not registered here. Its parameters"
                    " alone can be loaded after state['args'] = None in it"
                ) from error
            except Exception as error:
                refused = isinstance(error, pickle.UnpicklingError) and _REFUSED.search(str(error))
                if refused:
                    name = refused[1] or refused[2]
                    raise UsageError(
                        f"{path} was refused: it holds {name}, and loading that could execute code"
                    ) from error
                if not _shows_damage(error, path):
                    raise
                raise _damaged(path, error) from error


_reconstruct: Any = numpy.zeros(1).__reduce__()[0]


_scalar: Any = numpy.float64(0).__reduce__()[0]


# Namespace: the arguments of models registered without a dataclass. The rest: integer and float arrays, which the
# meters of --eval-bleu contain, and numbers such as acc_and_f1 of sentence_prediction, whose best value is kept.
# numpy 2 moved the two functions, so that their names depend on the numpy that wrote the file.
_SAFE: list[Callable | tuple[Callable, str]] = [
    argparse.Namespace,
    numpy.ndarray,
    numpy.dtype,
    type(numpy.dtype("int64")),
    type(numpy.dtype("float64")),
    (_reconstruct, "numpy.core.multiarray._reconstruct"),
    (_reconstruct, "numpy._core.multiarray._reconstruct"),
    (_scalar, "numpy.core.multiarray.scalar"),
    (_scalar, "numpy._core.multiarray.scalar"),
]


# The first torch without CVE-2026-24747, a fault of weights_only.
_SOUND = (2, 10)


# torch's message about a class that was not declared safe.
_REFUSED = re.compile(r"GLOBAL (\S+)|but got <class '([^']+)'>")


def is_refused(content: Any) -> bool:
    """Whether torch does not load ``content`` from a file that it saved."""
    file = io.BytesIO()
    torch.save(content, file)
    file.seek(0)
    try:
        torch.load(file)
    except pickle.UnpicklingError:
        return True
    return False


@functools.cache
def _warn_once_about(version: str) -> None:
    """Warn once if a checkpoint can harm this torch."""
    if tuple(map(int, version.split(".")[:2])) < _SOUND:
        logger.warning(
            f"torch {version} has a memory fault that a checkpoint can exploit, with weights_only too (CVE-2026-24747):"
            f" load only files that you trust, or install torch {'.'.join(map(str, _SOUND))} or later"
        )


def _shows_damage(error: Exception, path: str) -> bool:
    """Whether torch raises ``error`` for files that it cannot parse."""
    if isinstance(error, pickle.UnpicklingError | EOFError | UnicodeDecodeError | zipfile.BadZipFile):
        return True
    if isinstance(error, RuntimeError):  # torch's readers have no error class of their own
        return bool(re.search("PytorchStreamReader|file might be corrupted|corrupt file", str(error)))
    # torch seeks before the start of a truncated zip file, which is EINVAL.
    return isinstance(error, OSError) and error.errno == errno.EINVAL and not zipfile.is_zipfile(path)


def _damaged(path: str, error: Exception) -> UsageError:
    """The error for a file that could not be parsed, with another checkpoint to use."""
    reason = str(error).split(". ")[0].split("\n")[0] or type(error).__name__
    other = another(Path(path))
    advice = (
        f"use another one, such as {other}, with --restore-file or --path"
        if other
        else "no other checkpoint is beside it"
    )
    return UsageError(f"{path} is not a fairseq checkpoint or is damaged ({reason}): {advice}")


def another(damaged: Path) -> Path | None:
    """The newest other checkpoint in the folder that is complete: a truncated zip file has lost its directory."""
    others = [path for path in damaged.parent.glob("checkpoint*.pt") if path.name != damaged.name]
    return max(filter(zipfile.is_zipfile, others), key=lambda path: path.stat().st_mtime, default=None)


class RefusedBroadcast(Patch):
    """Resuming on several processes fails: rank 0 sends the checkpoint's config to the others through ``torch.load``.

    torch >= 2.6 refuses it under weights_only (fairseq 0.12.2 and fairseq-fixed 0.12.3.1). The bytes come from a
    process of the same run, not from a file, so this patch uses torch's own broadcast of objects.
    """

    name = "broadcast"
    summary = "resuming on several processes was refused by torch; rank 0 broadcasts the checkpoint as objects"

    def is_needed(self) -> bool:
        """Whether torch refuses the class that fairseq puts in the place of the sent tensors."""
        return is_refused(distributed_utils._TensorPlaceholder(index=0))

    def apply(self) -> None:
        @wrap_method(distributed_utils, "_broadcast_object_slow")
        def _broadcast_object_slow(
            original: Any, obj: Any, src_rank: int, group: Any, dist_device: torch.device
        ) -> Any:
            # XLA has no process groups for torch's broadcast.
            if distributed_utils.use_xla():
                return original(obj, src_rank, group, dist_device)
            holder = [obj]
            torch.distributed.broadcast_object_list(holder, src=src_rank, group=group, device=dist_device)
            return holder[0]
