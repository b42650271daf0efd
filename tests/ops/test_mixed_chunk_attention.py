import pytest
import torch

from fairseq_luna.ops.mixed_chunk_attention import chunked, initial_chunk, mixed_chunk_attention_step, naive
from largest_tensor import LargestTensor
from numeric import EVERY_DTYPE, PADDED, TOLERANCE, assert_gradients_close, mixed_padding, randn

FORMS = pytest.mark.parametrize("form", [naive, chunked], ids=["naive", "chunked"])
CAUSAL = pytest.mark.parametrize("causal", [False, True], ids=["bidirectional", "causal"])


def inputs(steps=40, *, size=7, causal=False, dtype=torch.float64, grad=True):
    keys = [randn(3, 2, steps, 6, dtype=dtype, seed=seed, grad=grad) for seed in range(4)]
    bias = randn(size if causal else 2 * size - 1, dtype=dtype, grad=grad)
    return *keys, randn(3, 2, steps, 8, dtype=dtype, seed=5, grad=grad), bias


@PADDED
@EVERY_DTYPE
@CAUSAL
@pytest.mark.parametrize(("steps", "size"), [(1, 3), (20, 20), (21, 5), (22, 1), (20, 64)])
def test_chunked_equals_naive(steps, size, causal, dtype, padded):
    args = inputs(steps, size=size, causal=causal, dtype=dtype)
    options = {"chunk_size": size, "causal": causal, "padding_mask": mixed_padding(steps) if padded else None}
    expected = naive.mixed_chunk_attention(*args, **options)
    actual = chunked.mixed_chunk_attention(*args, **options)
    assert actual.dtype == dtype
    torch.testing.assert_close(actual, expected, **TOLERANCE[dtype])
    alone = causal and steps <= size  # a first chunk reads nothing from afar
    assert_gradients_close(actual, expected, [args[i] for i in ((0, 1, 4, 5) if alone else range(6))], dtype)


@FORMS
@CAUSAL
def test_padding_is_neither_seen_nor_counted(form, causal):
    (*sequences, bias), mask = inputs(causal=causal), mixed_padding(40)
    mask[2] = True
    options = {"chunk_size": 7, "causal": causal}
    out = form.mixed_chunk_attention(*sequences, bias, padding_mask=mask, **options)
    assert not out.masked_select(mask[:, None, :, None]).any()
    for row in range(2):
        real = ~mask[row]
        alone = form.mixed_chunk_attention(*(x[row : row + 1, :, real] for x in sequences), bias, **options)
        torch.testing.assert_close(out[row : row + 1, :, real], alone)


@FORMS
@torch.no_grad()
def test_a_step_is_the_sum_of_the_formula(form):
    """Step 9 of chunks of 4: 8 and 9 in its chunk, and the mean over 0 to 7."""
    q, k, far_q, far_k, v, bias = inputs(12, size=4, causal=True, grad=False)
    out = form.mixed_chunk_attention(q, k, far_q, far_k, v, bias, chunk_size=4, causal=True)[0, 0, 9]
    near = sum(((q[0, 0, 9] @ k[0, 0, j]) / 4 + bias[9 - j]).relu() ** 2 * v[0, 0, j] for j in (8, 9))
    far = sum((far_q[0, 0, 9] @ far_k[0, 0, j]) * v[0, 0, j] for j in range(8)) / 8
    torch.testing.assert_close(out, near + far)


@PADDED
@pytest.mark.parametrize("at_once", [1, 3])
@pytest.mark.parametrize("size", [1, 7, 40])
@torch.no_grad()
def test_steps_equal_the_whole_pass(size, at_once, padded):
    (*sequences, bias), mask = inputs(size=size, causal=True, grad=False), mixed_padding(40)
    expected = chunked.mixed_chunk_attention(
        *sequences, bias, chunk_size=size, causal=True, padding_mask=mask if padded else None
    )
    state = initial_chunk(sequences[1], sequences[4])
    for t in range(0, 40, at_once):
        now = slice(t, t + at_once)
        padding_mask = mask[:, now] if padded and mask[:, now].any() else None
        new = (x[:, :, now] for x in sequences)
        y, state = mixed_chunk_attention_step(*new, bias, state, chunk_size=size, padding_mask=padding_mask)
        torch.testing.assert_close(y, expected[:, :, now])
    assert state.v.shape[2] == size
    assert (state.mean is None) == (size == 40)


@CAUSAL
def test_no_tensor_is_quadratic(causal):
    args = inputs(800, size=8, causal=causal, dtype=torch.float32)
    with LargestTensor() as largest:
        out = chunked.mixed_chunk_attention(*args, chunk_size=8, causal=causal, padding_mask=mixed_padding(800))
        out.sum().backward()
    assert largest.elements == args[4].numel()


@CAUSAL
def test_a_square_does_not_overflow_half_precision(causal):
    """Where a score is 400, its square is above the range of fp16; the sum with such values is not."""
    q, k, far_q, far_k, v, bias = inputs(6, size=3, causal=causal, dtype=torch.float16, grad=False)
    q, k, v, bias = torch.full_like(q, 20), torch.full_like(k, 10), torch.full_like(v, 1e-2), torch.zeros_like(bias)
    out = chunked.mixed_chunk_attention(q, k, 0 * far_q, far_k, v, bias, chunk_size=3, causal=causal)
    expected = 400.0**2 * 0.01 * (torch.tensor([1.0, 2, 3, 1, 2, 3]) if causal else 3)
    torch.testing.assert_close(out[0, 0, :, 0].float(), expected * torch.ones(6), rtol=2e-3, atol=0)
