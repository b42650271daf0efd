"""Launches in generated code are counted, and traced modules compute the same. Models need torch's CUDA build."""

import pytest
import torch
from torch import nn

from fairseq_luna.ops.padding import Padding

pytest.importorskip("triton")
from research import compiled_launches
from research.compiled_launches import OPERATOR_CALL, TRITON_CALL, Code, StepCount, compiled

CODE = """
    extern_kernels.addmm(arg2_1, reinterpret_tensor(arg0_1, (50, 512), (512, 1), 0), alpha=1, beta=1, out=buf0)
    buf1 = torch.ops.aten._scaled_dot_product_flash_attention.default(buf0, buf0, buf0)
    buf2 = empty_strided_cuda((512, ), (1, ), torch.float32)
    triton_red_fused_sum_3.run(buf0, buf2, 512, 50, stream=stream0)
    aten.randint.low_out(-9223372036854775808, 9223372036854775807, [2], out=buf3)
"""


class Masked(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(3, 3)
        self.register_buffer("factor", torch.tensor(2.0))

    def forward(self, x, padding, scale=1.0):
        assert isinstance(padding, Padding)
        y = self.linear(x).masked_fill(padding.existing_mask[..., None], 0)
        return y * self.factor * scale, padding.existing_mask.logical_not()


def test_calls_of_generated_code_that_launch():
    assert len(TRITON_CALL.findall(CODE)) == 1
    assert OPERATOR_CALL.findall(CODE) == ["addmm", "_scaled_dot_product_flash_attention", "randint"]


def test_a_compiled_module_adds_its_code_and_computes_the_same(monkeypatch):
    passes = []

    def code_of(graph, inputs, *, backward):
        passes.append(backward)
        return Code(300, 10) if backward else Code(5, 1)

    monkeypatch.setattr(compiled_launches, "code_of", code_of)
    torch.manual_seed(0)
    x, padding = torch.randn(2, 4, 3), Padding(torch.rand(2, 4) < 0.5)
    found = []
    for compiles in (False, True):
        module, count = Masked(), StepCount(shortest=1)
        nn.init.constant_(module.linear.weight, 0.5)
        nn.init.constant_(module.linear.bias, 0.1)
        if compiles:
            module.forward = compiled(module, count)
        with count, compiled_launches.code_generation(), torch.autograd.set_multithreading_enabled(False):
            y, real = module(x, padding, scale=3.0)
            y.square().sum().backward()
        found.append((y.detach(), real, module.linear.weight.grad, module.linear.bias.grad))
        # Operators of the CPU are not counted.
        assert (count.launches, count.bytes) == ((305, 11) if compiles else (0, 0))
    torch.testing.assert_close(*found)
    assert passes == [False, True]


def test_needs_a_device(monkeypatch, capsys):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert compiled_launches.main([]) == 2
    assert "run make check-cuda" in capsys.readouterr().err
