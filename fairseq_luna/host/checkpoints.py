"""torch >= 2.6 loads only tensors and plain containers, and fairseq's checkpoints hold a little more.

The few classes that they hold are declared safe; everything else is still refused, because unpickling it
could run code, and the refusal names the class and the file in one line.
"""

import argparse
import functools
import io
import pickle
import re
from collections.abc import Callable
from typing import Any

import numpy
import torch
from fairseq import checkpoint_utils

from fairseq_luna.host.mend import Mend

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


def probe() -> bool:
    """Whether torch refuses a checkpoint that holds what fairseq puts there."""
    file = io.BytesIO()
    torch.save([argparse.Namespace(), numpy.zeros(1), numpy.zeros(1, dtype="int64")], file)
    file.seek(0)
    try:
        torch.load(file)
    except pickle.UnpicklingError:
        return True
    return False


def mend() -> None:
    torch.serialization.add_safe_globals(_HELD)
    host_load = checkpoint_utils.load_checkpoint_to_cpu

    @functools.wraps(host_load)
    def load_checkpoint_to_cpu(path: str, *args: Any, **kwargs: Any) -> dict[str, Any]:
        try:
            return host_load(path, *args, **kwargs)
        except pickle.UnpicklingError as error:
            found = re.search(r"GLOBAL (\S+)", str(error))
            if found is None:
                raise
            refusal = f"{path} was refused: it holds {found[1]}, and loading that could execute code"
            raise pickle.UnpicklingError(refusal) from None

    checkpoint_utils.load_checkpoint_to_cpu = load_checkpoint_to_cpu


MEND = Mend(
    "checkpoints",
    probe,
    mend,
    "torch refused fairseq's checkpoints; the classes they hold are declared safe, all others stay refused",
)
