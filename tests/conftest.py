import functools
import gc
import logging
import os
from collections.abc import Callable, Iterator
from typing import Any

# Models this small are slower with a second thread if another process uses it too. Must be set before importing torch.
os.environ.setdefault("OMP_NUM_THREADS", "1")

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    about = (
        "where tests make tensors and train; cuda is for tests/{ops,modules,optim,models} and trainings of reliability"
    )
    parser.addoption("--device", choices=("cpu", "cuda"), default="cpu", help=about)


def pytest_configure(config: pytest.Config) -> None:
    """Tests that name no device run on the one that is chosen."""
    if config.getoption("--device") == "cpu":
        # Triton's kernels are executed in Python. Must be set before importing triton.
        os.environ.setdefault("TRITON_INTERPRET", "1")
        return
    import torch
    from torch.utils import _device

    torch.set_default_device("cuda")
    torch.backends.cudnn.allow_tf32 = False  # a convolution in fp32 is otherwise rounded
    torch.load = functools.partial(torch.load, map_location="cuda")
    _device._device_constructors()  # a table that torch keeps from its first use: of its own functions
    for name in ("rand", "randn", "randint", "randperm"):
        setattr(torch, name, drawn_on_the_cpu(getattr(torch, name)))


@pytest.hookimpl(trylast=True)
def pytest_collection_finish() -> None:
    """Exempt what is imported and collected from garbage collection, which took half a second each time with it."""
    gc.collect()
    gc.freeze()


def drawn_on_the_cpu(draw: Callable[..., Any]) -> Callable[..., Any]:
    """``draw`` with the same numbers on every device, where a generator of the CPU is given."""
    import torch

    @functools.wraps(draw)
    def drawn(*sizes: Any, generator: Any = None, device: Any = None, **options: Any) -> Any:
        device = device or torch.get_default_device()
        if generator is None:
            return draw(*sizes, device=device, **options)
        grad = options.pop("requires_grad", False)
        return draw(*sizes, generator=generator, device=generator.device, **options).to(device).requires_grad_(grad)

    return drawn


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
    import torch

    import tiny_training  # imports fairseq, which the tests of the operations do without

    with torch.device("cpu"):  # fairseq writes numpy's arrays
        return tiny_training.make_data(tmp_path_factory.mktemp("tiny-data"))


@pytest.fixture(scope="module")
def fairseq_in_forks() -> Iterator[None]:
    """Start the commands of fairseq that prepare and the demo run as forks of this process: new ones take seconds."""
    import commands
    from fairseq_luna.commands import shell_commands

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(shell_commands, "start_fairseq", commands.start)
        yield
