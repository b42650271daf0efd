import inspect

import pytest
from fairseq.optim.adam import Adam
from fairseq.optim.fp16_optimizer import FP16Optimizer

from fairseq_luna import compat
from fairseq_luna.compat import multi_tensor_adam, multi_tensor_gradients

compat.apply_patches()


@pytest.fixture
def fairseqs(monkeypatch):
    """Call to take fairseq's own functions for an update."""

    def restore():
        for owner, name, _ in multi_tensor_gradients.REPLACED:
            monkeypatch.setattr(owner, name, getattr(owner, name).__wrapped__)
        monkeypatch.setattr(Adam, "step", inspect.unwrap(Adam.step))  # torch has wrapped ours once more

    return restore


@pytest.fixture
def flattened_on_a_cpu(monkeypatch):
    """fairseq's own function for --fp16, which ours refuses without a CUDA device."""
    flatten = FP16Optimizer.build_fp32_params
    monkeypatch.setattr(FP16Optimizer, "build_fp32_params", getattr(flatten, "__wrapped__", flatten))


@pytest.fixture
def as_on_a_gpu(monkeypatch):
    """Adam's multi-tensor calls for tensors on a CPU, too."""
    monkeypatch.setattr(multi_tensor_adam, "has_multi_tensor_kernels", lambda device: True)
