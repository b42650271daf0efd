import functools
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

    torch.set_default_device("cuda")
    torch.backends.cudnn.allow_tf32 = False  # a convolution in fp32 is otherwise rounded
    torch.load = functools.partial(torch.load, map_location="cuda")
    for name in ("rand", "randn", "randint", "randperm"):
        setattr(torch, name, on_default_device(getattr(torch, name)))


def on_default_device(draw: Callable[..., Any]) -> Callable[..., Any]:
    """``draw`` with a generator of the CPU, which has the same numbers on every device."""
    import torch

    @functools.wraps(draw)
    def moved(*sizes: Any, generator: Any = None, device: Any = None, **options: Any) -> Any:
        if generator is None:
            return draw(*sizes, device=device, **options)
        grad = options.pop("requires_grad", False)
        x = draw(*sizes, generator=generator, device=generator.device, **options)
        return x.to(device or torch.get_default_device()).requires_grad_(grad)

    return moved


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
