"""The estimate's arithmetic. Models themselves run on fake CUDA tensors only with torch's CUDA build."""

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from research import gpu_estimate
from research.gpu_estimate import BYTES_A_SECOND, SECONDS_A_KERNEL, Estimate, kernels_of


def cuda(*shape, dtype=torch.bfloat16):
    return torch.empty(*shape, dtype=dtype, device="cuda")


def test_a_product_takes_its_operations_or_its_bytes_or_a_launch():
    with FakeTensorMode():
        for size in (4096, 16):
            for dtype, speed in ((torch.bfloat16, 0.6 * 798e12), (torch.float32, 35e12)):
                a, b = cuda(size, size, dtype=dtype), cuda(size, size, dtype=dtype)
                with Estimate(shortest=1) as found:
                    (a @ b).t()
                assert found.launches == 1 and found.bytes == 3 * size**2 * dtype.itemsize
                expected = 2 * size**3 / speed if size == 4096 else SECONDS_A_KERNEL
                assert found.seconds == pytest.approx(expected)
        with Estimate(shortest=1) as found:
            cuda(2**30) + cuda(1).expand(2**30)
        assert found.bytes == 2 * 2 * 2**30 + 2
        assert found.seconds == pytest.approx(found.bytes / BYTES_A_SECOND)


def test_answers_what_the_models_read_and_leaves_the_cpu_out():
    with FakeTensorMode(), Estimate(shortest=5) as found:
        words = cuda(2, 7, dtype=torch.int64)
        assert words.eq(1).any() and words.sum().item() == 5
        assert torch.tensor(False).item() is False and (torch.ones(2) + 1).is_cpu
    assert found.launches == 3


def test_the_kernels_are_six_launches():
    q, k, scores = (
        torch.empty(2, 8, 256, size, dtype=torch.bfloat16, device="meta", requires_grad=True) for size in (64, 64, 32)
    )
    found = Estimate(shortest=1)
    y, weights = kernels_of(lambda: found)(q, k, k, scores)
    y.sum().backward()
    assert weights is None and found.launches == 6
    # Each is read or written a few times in each pass, and the states are less than that.
    assert 8 < found.bytes / (2 * q.numel()) < 30


def test_needs_a_device(monkeypatch, capsys):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert gpu_estimate.main([]) == 2
    assert "run make check-cuda" in capsys.readouterr().err
