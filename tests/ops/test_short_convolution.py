from contextlib import nullcontext

import pytest
import torch
from functorch.compile import make_boxed_func
from hypothesis import given, settings
from hypothesis import strategies as st
from torch._dynamo.backends.common import aot_autograd

from fairseq_luna.ops.nystrom_attention import convolution_of_real_steps
from fairseq_luna.ops.short_convolution import short_convolution, short_convolution_reference
from numeric import EVERY_DTYPE, TOLERANCE, assert_gradients_close, mixed_padding, randn


def inputs(shape, dtype=torch.float64, seed=0):
    steps, batch, channels, taps = shape
    return (
        randn(steps + taps - 1, batch, channels, dtype=dtype, seed=seed),
        randn(channels, taps, dtype=dtype, seed=seed + 1),
    )


@EVERY_DTYPE
@pytest.mark.parametrize("shape", [(1, 1, 1, 1), (7, 3, 6, 5), (65, 2, 16, 9)], ids=str)
def test_fused_equals_naive(shape, dtype):
    x, weight = inputs(shape, dtype)
    expected = short_convolution_reference(x, weight)
    actual = short_convolution(x, weight)
    assert actual.shape == shape[:3]
    torch.testing.assert_close(actual, expected, **TOLERANCE[dtype])
    assert_gradients_close(actual, expected, (x, weight), dtype)


@settings(max_examples=40, deadline=None)
@given(shape=st.tuples(*(st.integers(1, high) for high in (30, 3, 9, 12))), seed=st.integers(0, 1000))
def test_any_shape(shape, seed):
    x, weight = inputs(shape, seed=seed)
    torch.testing.assert_close(short_convolution(x, weight), short_convolution_reference(x, weight))


def test_a_single_weight_shifts_its_channel():
    x, weight = torch.arange(20.0).view(10, 1, 2), torch.zeros(2, 3)
    weight[0, 2], weight[1, 0] = 1, 10
    for form in (short_convolution, short_convolution_reference):
        out = form(x, weight)
        assert out[:, 0, 0].equal(x[2:, 0, 0])
        assert out[:, 0, 1].equal(10 * x[:-2, 0, 1])


PADDING_MASK = mixed_padding(7)


def convolution_of_heads(v, kernel):
    return convolution_of_real_steps(v, kernel, PADDING_MASK)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, "autocast"], ids=str)
@pytest.mark.parametrize(
    ("function", "shapes"),
    [(short_convolution, [(11, 3, 6), (6, 5)]), (convolution_of_heads, [(3, 2, 7, 4), (2, 5)])],
    ids=["short convolution", "nystrom"],
)
def test_compiled_training_has_no_convolution(function, shapes, dtype):
    """inductor of torch 2.13 compiles the gradient of a convolution again for each length: docs/reliability.md."""
    operators = set()

    def record(graph, _):
        operators.update(node.target for node in graph.graph.nodes)
        return make_boxed_func(graph.forward)

    inputs = [randn(*shape, dtype=torch.float32 if dtype == "autocast" else dtype) for shape in shapes]
    compiled = torch.compile(function, backend=aot_autograd(fw_compiler=record), fullgraph=True)
    with torch.autocast("cpu", dtype=torch.bfloat16) if dtype == "autocast" else nullcontext():
        expected, found = function(*inputs), compiled(*inputs)
    torch.testing.assert_close(found, expected, **TOLERANCE[expected.dtype])
    gradient = randn(*expected.shape, dtype=expected.dtype, seed=2)
    torch.testing.assert_close(
        *(torch.autograd.grad(y, inputs, gradient) for y in (found, expected)), **TOLERANCE[expected.dtype]
    )
    assert torch.ops.aten.unfold.default in operators
    assert not operators & {torch.ops.aten.convolution.default, torch.ops.aten.convolution_backward.default}
