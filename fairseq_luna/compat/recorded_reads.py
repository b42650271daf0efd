"""What fairseq's own functions read from checkpoints, without reading a file twice."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from unittest.mock import patch

from fairseq import checkpoint_utils


@dataclass(frozen=True)
class ReadCheckpoint:
    """A checkpoint that was read, without its tensors.

    Args:
        cfg: the settings of its training; None if it has none.
        extra_state: the entry of that name.
        has_heads: whether the model has classification heads.
    """

    cfg: Any
    extra_state: Mapping[str, Any]
    has_heads: bool


@contextmanager
def recorded_reads() -> Iterator[list[ReadCheckpoint]]:
    """Record the checkpoints that ``checkpoint_utils`` reads here; with several processes another one may read them."""
    read: list[ReadCheckpoint] = []
    original = checkpoint_utils.load_checkpoint_to_cpu

    def load_checkpoint_to_cpu(*args: Any, **kwargs: Any) -> Any:
        state = original(*args, **kwargs)
        heads = any(name.startswith("classification_heads.") for name in state.get("model") or ())
        read.append(ReadCheckpoint(state.get("cfg"), state.get("extra_state") or {}, heads))
        return state

    with patch.object(checkpoint_utils, "load_checkpoint_to_cpu", load_checkpoint_to_cpu):
        yield read
