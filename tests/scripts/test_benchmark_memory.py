"""The peak memory of a step in a fresh process."""

import functools
import operator

import pytest
import torch

from benchmarks import memory

MIB = 2**20


def peak_of_writing(size: int) -> float | None:
    """A step that fills ``size`` bytes."""
    return memory.peak_mib(functools.partial, operator.mul, b"x", size, device="cpu", threads=1)


def prepared_with(held: int, size: int) -> functools.partial[bytes]:
    """A step that fills ``size`` bytes while ``held`` more are allocated and as many were just freed."""
    freed = b"y" * held
    del freed
    return functools.partial(lambda kept, size: b"x" * size, b"z" * held, size)


@pytest.mark.skipif(not memory._STATUS.exists(), reason="resident memory is read in Linux's way")
def test_the_peak_is_what_the_step_adds() -> None:
    assert peak_of_writing(200 * MIB) == pytest.approx(200, abs=4)


def test_the_peak_does_not_count_what_the_preparation_holds_or_has_freed() -> None:
    peak = memory.peak_mib(prepared_with, 200 * MIB, 50 * MIB, device="cpu", threads=1)
    assert peak == pytest.approx(50, abs=4)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device here")
def test_the_peak_on_cuda_is_what_the_step_allocates() -> None:
    def prepare(size: int) -> functools.partial[torch.Tensor]:
        return functools.partial(torch.zeros, size, dtype=torch.uint8, device="cuda")

    assert memory.peak_mib(prepare, 200 * MIB, device="cuda", threads=1) == pytest.approx(200, abs=3)
    assert memory.peak_mib(prepare, 2**50, device="cuda", threads=1) is None


def test_a_step_that_does_not_fit_has_no_peak() -> None:
    assert peak_of_writing(2**50) is None


def test_another_error_is_not_reported_as_out_of_memory() -> None:
    with pytest.raises(ZeroDivisionError):
        memory.peak_mib(functools.partial, operator.truediv, 1, 0, device="cpu", threads=1)
