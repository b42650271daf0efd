"""torch >= 2.6 loads only tensors and plain containers, and fairseq's checkpoints hold a little more.

The few classes that they hold are declared safe; everything else is still refused, because unpickling it
could run code, and the refusal names the class and the file in one line. So does that of a damaged file.
"""

import argparse
import functools
import io
import pickle
import re
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy
import torch
from fairseq import checkpoint_utils

from fairseq_luna.compat.patch import Patch
from fairseq_luna.usage_error import UsageError

_reconstruct: Any = numpy.zeros(1).__reduce__()[0]

# Namespace: the arguments of models registered without a dataclass. The rest: integer and float arrays, which
# the meters of --eval-bleu keep. numpy 2 moved _reconstruct, so its name depends on who wrote the file.
_HELD: list[Callable | tuple[Callable, str]] = [
    argparse.Namespace,
    numpy.ndarray,
    numpy.dtype,
    type(numpy.dtype("int64")),
    type(numpy.dtype("float64")),
    (_reconstruct, "numpy.core.multiarray._reconstruct"),
    (_reconstruct, "numpy._core.multiarray._reconstruct"),
]


def is_needed() -> bool:
    """Whether torch refuses a checkpoint that holds what fairseq puts there."""
    file = io.BytesIO()
    torch.save([argparse.Namespace(), numpy.zeros(1), numpy.zeros(1, dtype="int64")], file)
    file.seek(0)
    try:
        torch.load(file)
    except pickle.UnpicklingError:
        return True
    return False


def apply() -> None:
    torch.serialization.add_safe_globals(_HELD)
    original_load = checkpoint_utils.load_checkpoint_to_cpu

    @functools.wraps(original_load)
    def load_checkpoint_to_cpu(path: str, *args: Any, **kwargs: Any) -> dict[str, Any]:
        try:
            return original_load(path, *args, **kwargs)
        except (OSError, UsageError, MemoryError):
            raise
        except Exception as error:  # a damaged file ends in as many ways as there are bytes
            if "allocate memory" in str(error):
                raise
            found = re.search(r"GLOBAL (\S+)", str(error))
            if isinstance(error, pickle.UnpicklingError) and found is not None:
                refusal = f"{path} was refused: it holds {found[1]}, and loading that could execute code"
                raise pickle.UnpicklingError(refusal) from None
            raise _unreadable(path, str(error).split(". ")[0].split("\n")[0] or type(error).__name__) from error

    checkpoint_utils.load_checkpoint_to_cpu = load_checkpoint_to_cpu


def _unreadable(path: str, why: str) -> UsageError:
    other = another(Path(path))
    mend = f"take another, such as {other}, with --restore-file or --path" if other else "there is no other beside it"
    return UsageError(f"{path} is no checkpoint of fairseq's, or is damaged ({why}): {mend}")


def another(damaged: Path) -> Path | None:
    """The newest other checkpoint in the folder; one cut short has lost its table of contents, and is none."""
    others = [path for path in damaged.parent.glob("checkpoint*.pt") if path.name != damaged.name]
    return max(filter(zipfile.is_zipfile, others), key=lambda path: path.stat().st_mtime, default=None)


PATCH = Patch(
    "checkpoints",
    is_needed,
    apply,
    "torch refused fairseq's checkpoints; the classes they hold are declared safe, all others stay refused",
)
