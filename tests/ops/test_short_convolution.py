import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fairseq_luna.ops.short_convolution import short_convolution, short_convolution_reference
from numeric import EVERY_DTYPE, TOLERANCE, assert_gradients_close, randn


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
