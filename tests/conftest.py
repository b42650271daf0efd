import logging
import os
from collections.abc import Iterator

# Models this small are slower with a second thread if another process uses it too. Must be set before importing torch.
os.environ.setdefault("OMP_NUM_THREADS", "1")
# Triton's kernels are executed in Python. Must be set before importing triton.
os.environ.setdefault("TRITON_INTERPRET", "1")

import pytest


@pytest.fixture(autouse=True)
def _no_closed_log() -> Iterator[None]:
    """Remove handlers of fairseq and hydra that write to the closed standard output of an earlier test."""
    yield
    root = logging.getLogger()
    for handler in list(root.handlers):
        if isinstance(handler, logging.StreamHandler) and getattr(handler.stream, "closed", False):
            root.removeHandler(handler)


@pytest.fixture(scope="session")
def tiny_data(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A data-bin of a few dozen sentences, made once."""
    import tiny_training  # imports fairseq, which the tests of the operations do without

    return tiny_training.make_data(tmp_path_factory.mktemp("tiny-data"))
