"""Checkpoints that fairseq's trainer reads, without reading a file twice."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from unittest.mock import patch

from fairseq import checkpoint_utils

from fairseq_luna.dictionary_fingerprints import recorded_fingerprints


@dataclass(frozen=True)
class ReadCheckpoint:
    """The parts of a checkpoint that warnings compare.

    Args:
        cfg: the settings of its training; None if it has none.
        fingerprints: fingerprints of the dictionaries of its training.
        has_heads: whether the model has classification heads.
    """

    cfg: Any
    fingerprints: Mapping[str, str]
    has_heads: bool


@contextmanager
def recorded_reads() -> Iterator[list[ReadCheckpoint]]:
    """Record the checkpoints that ``checkpoint_utils`` reads in this process; another process may read them for it.

    Only for the trainer: the function that reads is replaced for all threads.
    """
    read: list[ReadCheckpoint] = []
    original = checkpoint_utils.load_checkpoint_to_cpu

    def load_checkpoint_to_cpu(*args: Any, **kwargs: Any) -> Any:
        state = original(*args, **kwargs)
        heads = any(name.startswith("classification_heads.") for name in state.get("model") or ())
        read.append(ReadCheckpoint(state.get("cfg"), recorded_fingerprints(state.get("extra_state")), heads))
        return state

    with patch.object(checkpoint_utils, "load_checkpoint_to_cpu", load_checkpoint_to_cpu):
        yield read
