import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fairseq_luna.ops.prefix_attention import chunked, naive, recurrent, sums
from largest_tensor import LargestTensor
from numeric import EVERY_DTYPE, PADDED, TOLERANCE, assert_gradients_close, gradients, randn, random_padding

SHAPES = [(1, 1, 1, 1, 1), (2, 3, 7, 4, 5), (2, 3, 65, 16, 4), (1, 2, 200, 8, 8), (3, 1, 129, 5, 3)]
SHAPE_IDS = [f"B{b}-H{h}-T{t}-D{d}-E{e}" for b, h, t, d, e in SHAPES]


def inputs(shape, dtype=torch.float64, seed=0):
    batch, heads, steps, size, value_size = shape
    return (
        randn(batch, heads, steps, size, dtype=dtype, seed=seed),
        randn(batch, heads, steps, size, dtype=dtype, seed=seed + 1),
        randn(batch, heads, steps, value_size, dtype=dtype, seed=seed + 2),
    )


def one_by_one(q, k, v, padding_mask=None):
    """The outputs of the recurrent form, and its last state."""
    state, outputs = recurrent.initial_prefix_mean(k, v), []
    dtype = state.mean.dtype
    for t in range(q.shape[2]):
        padded = None if padding_mask is None else padding_mask[:, t]
        step = slice(t, t + 1)
        state = recurrent.advance(k[:, :, step].to(dtype), v[:, :, step], state, padded=padded)
        outputs.append(q[:, :, step].to(dtype) @ state.mean)
    return torch.cat(outputs, dim=2).to(q.dtype), state


@PADDED
@EVERY_DTYPE
@pytest.mark.parametrize("shape", SHAPES, ids=SHAPE_IDS)
def test_chunked_equals_naive(shape, dtype, padded):
    q, k, v = inputs(shape, dtype)
    mask = random_padding(shape[0], shape[2], share=0.3) if padded else None
    expected = naive.prefix_attention(q, k, v, padding_mask=mask)
    actual = chunked.prefix_attention(q, k, v, padding_mask=mask, block_length=32)
    assert actual.dtype == dtype
    torch.testing.assert_close(actual, expected, **TOLERANCE[dtype])
    assert_gradients_close(actual, expected, (q, k, v), dtype)


@settings(max_examples=60, deadline=None)
@given(
    shape=st.tuples(*(st.integers(1, high) for high in (3, 3, 70, 9, 9))),
    block_length=st.integers(1, 40),
    share=st.sampled_from([0.0, 0.2, 0.9, 1.0]),
    seed=st.integers(0, 1000),
)
def test_any_shape_block_length_and_padding(shape, block_length, share, seed):
    q, k, v = inputs(shape, seed=seed)
    mask = random_padding(shape[0], shape[2], share=share, seed=seed)
    expected = naive.prefix_attention(q, k, v, padding_mask=mask)
    actual = chunked.prefix_attention(q, k, v, padding_mask=mask, block_length=block_length)
    torch.testing.assert_close(actual, expected, **TOLERANCE[torch.float64])
    steps, state = one_by_one(q, k, v, mask)
    torch.testing.assert_close(steps, expected, **TOLERANCE[torch.float64])
    torch.testing.assert_close(tuple(recurrent.prefix_mean_of(k, v, padding_mask=mask)), tuple(state))


@EVERY_DTYPE
def test_recurrent_equals_naive_one_step_at_a_time(dtype):
    q, k, v = inputs((2, 3, 50, 8, 5), dtype)
    mask = random_padding(2, 50, share=0.3)
    expected = naive.prefix_attention(q, k, v, padding_mask=mask)
    torch.testing.assert_close(one_by_one(q, k, v, mask)[0], expected, **TOLERANCE[dtype])


@pytest.mark.parametrize("attention", [naive.prefix_attention, chunked.prefix_attention], ids=["naive", "chunked"])
def test_no_step_depends_on_a_later_one(attention):
    q, k, v = inputs((1, 2, 150, 4, 4))
    seen = torch.autograd.grad(attention(q, k, v)[:, :, 70].sum(), (q, k, v))
    for gradient in seen:
        assert gradient[:, :, 71:].abs().max() == 0
    assert seen[2][:, :, :71].abs().min() > 0


@pytest.mark.parametrize("attention", [naive.prefix_attention, chunked.prefix_attention], ids=["naive", "chunked"])
def test_padded_steps_have_no_effect(attention):
    q, k, v = inputs((1, 2, 90, 4, 4))
    mask = random_padding(1, 90, share=0.4)
    mask[0, :5] = True
    real = ~mask[0]
    expected = attention(q[:, :, real], k[:, :, real], v[:, :, real])
    torch.testing.assert_close(attention(q, k, v, padding_mask=mask)[:, :, real], expected)


@pytest.mark.parametrize("attention", [naive.prefix_attention, chunked.prefix_attention], ids=["naive", "chunked"])
def test_before_the_first_real_step_the_output_is_zero(attention):
    q, k, v = inputs((2, 1, 40, 3, 3))
    mask = torch.zeros(2, 40, dtype=torch.bool)
    mask[0, :13] = True
    out = attention(q, k, v, padding_mask=mask)
    assert out[0, :, :13].abs().max() == 0
    assert out[1, :, :13].abs().min() > 0


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=["fp32", "bf16", "fp16"])
def test_precision_after_100000_steps(dtype):
    # All products are positive and far from zero, so that a sum would grow linearly.
    shape = (1, 1, 100_000, 4, 4)
    q, k, v = ((x.detach().abs() * 20).to(dtype) for x in inputs(shape, dtype))
    expected = chunked.prefix_attention(q.double(), k.double(), v.double())
    actual = chunked.prefix_attention(q, k, v)
    worst = ((actual.double() - expected).abs() / expected.abs()).max()
    assert worst < {torch.float32: 2e-5, torch.bfloat16: 5e-3, torch.float16: 1e-3}[dtype]
    state = recurrent.prefix_mean_of(k, v)
    before = recurrent.PrefixMean(state.mean, state.steps - 1)
    after = recurrent.advance(k[:, :, :1].to(state.mean.dtype), v[:, :, :1], before)
    assert torch.isfinite(after.mean).all()


def test_a_step_is_exact_after_100000_steps():
    mean = torch.full((1, 1, 2, 2), 3.0)
    state = recurrent.PrefixMean(mean, torch.tensor([100_000.0]))
    one = torch.ones(1, 1, 1, 2)
    after = recurrent.advance(one * 3, one, state)
    torch.testing.assert_close(after.mean, mean)
    assert after.steps.item() == 100_001


def test_more_blocks_than_are_summed_at_once():
    q, k, v = inputs((2, 2, 300, 4, 3), torch.float64)
    expected = naive.prefix_attention(q, k, v)
    actual = chunked.prefix_attention(q, k, v, block_length=2)
    assert sums.MOST_BLOCKS_SUMMED_AT_ONCE < 300 // 2
    torch.testing.assert_close(actual, expected)
    torch.testing.assert_close(gradients(actual, q, k, v), gradients(expected, q, k, v))


def test_memory_has_no_state_per_step():
    steps, size, value_size = 2048, 64, 32
    q, k, v = inputs((1, 1, steps, size, value_size), torch.float32)
    with LargestTensor() as largest:
        chunked.prefix_attention(q, k, v).sum().backward()
    assert largest.elements <= steps * max(size, chunked.default_block_length(size, value_size))


@pytest.mark.parametrize(
    ("size", "value_size", "length"),
    [(1, 1, 32), (64, 16, 32), (64, 32, 64), (64, 64, 64), (65, 65, 128), (128, 256, 256), (1024, 1024, 256)],
)
def test_block_length_balances_the_products(size, value_size, length):
    assert chunked.default_block_length(size, value_size) == length
    assert chunked.default_block_length(value_size, size) == length


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=["bf16", "fp16"])
def test_a_state_of_half_precision_is_kept_in_fp32(dtype):
    _, k, v = inputs((2, 3, 5, 4, 6), dtype)
    for state in (recurrent.initial_prefix_mean(k, v), recurrent.prefix_mean_of(k, v)):
        assert state.mean.shape == (2, 3, 4, 6)
        assert state.steps.shape == (2,)
        assert {x.dtype for x in state} == {torch.float32}
