import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fairseq_luna.ops.prefix_softmax import chunked, naive, recurrent
from largest_tensor import LargestTensor
from numeric import EVERY_DTYPE, PADDED, TOLERANCE, assert_gradients_close, gradients, randn, random_padding

SHAPES = [(1, 1, 1, 1), (2, 3, 7, 4), (2, 3, 65, 16), (1, 2, 150, 8), (3, 1, 129, 5)]
SHAPE_IDS = [f"B{b}-H{h}-T{t}-D{d}" for b, h, t, d in SHAPES]
FORMS = [naive.prefix_softmax, chunked.prefix_softmax]
FORM_IDS = ["naive", "chunked"]


def inputs(shape, dtype=torch.float64, seed=0):
    """Random scores and values."""
    return randn(*shape[:3], dtype=dtype, seed=seed), randn(*shape, dtype=dtype, seed=seed + 1)


def by_steps(scores, v, mask=None):
    """The recurrent form, one step at a time, and its last state."""
    state, outputs = recurrent.initial_running_softmax(v), []
    for t in range(v.shape[2]):
        step = slice(t, t + 1)
        padded = None if mask is None else mask[:, step]
        out, state = recurrent.prefix_softmax_step(scores[:, :, step], v[:, :, step], state, padding_mask=padded)
        outputs.append(out)
    return torch.cat(outputs, dim=2), state


@PADDED
@EVERY_DTYPE
@pytest.mark.parametrize("shape", SHAPES, ids=SHAPE_IDS)
def test_chunked_equals_naive(shape, dtype, padded):
    scores, v = inputs(shape, dtype)
    mask = random_padding(shape[0], shape[2], share=0.3) if padded else None
    expected = naive.prefix_softmax(scores, v, padding_mask=mask)
    actual = chunked.prefix_softmax(scores, v, padding_mask=mask, block_length=16)
    assert actual.dtype == dtype
    torch.testing.assert_close(actual, expected, **TOLERANCE[dtype])
    assert_gradients_close(actual, expected, (scores, v), dtype)


@settings(max_examples=60, deadline=None)
@given(
    shape=st.tuples(*(st.integers(1, high) for high in (3, 3, 70, 9))),
    block_length=st.integers(2, 40),
    share=st.sampled_from([0.0, 0.2, 0.9, 1.0]),
    spread=st.sampled_from([0.0, 1.0, 100.0]),
    seed=st.integers(0, 1000),
)
def test_any_shape_block_length_padding_and_spread(shape, block_length, share, spread, seed):
    scores, v = inputs(shape, seed=seed)
    scores = scores * spread
    mask = random_padding(shape[0], shape[2], share=share, seed=seed)
    expected = naive.prefix_softmax(scores, v, padding_mask=mask)
    actual = chunked.prefix_softmax(scores, v, padding_mask=mask, block_length=block_length)
    torch.testing.assert_close(actual, expected, **TOLERANCE[torch.float64])
    torch.testing.assert_close(gradients(actual, scores, v), gradients(expected, scores, v))
    at_once, _ = recurrent.prefix_softmax_step(scores, v, recurrent.initial_running_softmax(v), padding_mask=mask)
    torch.testing.assert_close(at_once, expected, **TOLERANCE[torch.float64])


def clamp_of_torch_2_15(x, *, min):
    """No gradient at the bound."""
    return torch.where(x > min, x, min)


@pytest.mark.parametrize("form", [chunked.prefix_softmax, by_steps], ids=["chunked", "recurrent"])
def test_the_first_step_has_a_gradient_in_every_torch_version(form, monkeypatch):
    scores, v = inputs((1, 2, 3, 4))
    expected = gradients(naive.prefix_softmax(scores, v), scores, v)
    monkeypatch.setattr(torch.Tensor, "clamp", clamp_of_torch_2_15)
    actual = form(scores, v)
    actual = actual if form is chunked.prefix_softmax else actual[0]
    torch.testing.assert_close(gradients(actual, scores, v), expected)


@EVERY_DTYPE
def test_recurrent_equals_naive_one_step_at_a_time(dtype):
    scores, v = inputs((2, 3, 50, 8), dtype)
    mask = random_padding(2, 50, share=0.3)
    mask[0, :4] = True
    actual, state = by_steps(scores, v, mask)
    expected = naive.prefix_softmax(scores, v, padding_mask=mask)
    torch.testing.assert_close(actual, expected, **TOLERANCE[dtype])
    torch.testing.assert_close(gradients(actual, scores, v), gradients(expected, scores, v), **TOLERANCE[dtype])
    start = recurrent.initial_running_softmax(v)
    assert [x.shape for x in state] == [x.shape for x in start]
    assert state.mean.dtype == (torch.float64 if dtype == torch.float64 else torch.float32)
    assert state.log_denominator.dtype == torch.float64


@pytest.mark.parametrize("attention", FORMS, ids=FORM_IDS)
def test_the_last_step_is_the_softmax_over_all(attention):
    scores, v = inputs((2, 3, 140, 4))
    expected = (scores.softmax(-1)[..., None] * v).sum(2)
    torch.testing.assert_close(attention(scores, v)[:, :, -1], expected)


@pytest.mark.parametrize("attention", FORMS, ids=FORM_IDS)
def test_no_step_depends_on_a_later_one(attention):
    scores, v = inputs((1, 2, 150, 4))
    for gradient in torch.autograd.grad(attention(scores, v)[:, :, 70].square().sum(), (scores, v)):
        assert gradient[:, :, 71:].abs().max() == 0
        assert gradient[:, :, :71].abs().min() > 0


@pytest.mark.parametrize("attention", FORMS, ids=FORM_IDS)
def test_padded_steps_have_no_effect(attention):
    scores, v = inputs((1, 2, 90, 4))
    mask = random_padding(1, 90, share=0.4)
    mask[0, :5] = True
    real = ~mask[0]
    # The running maximum must ignore padding too: here its scores are far above all others.
    scores = scores + 1e4 * mask[:, None]
    expected = attention(scores[:, :, real], v[:, :, real])
    torch.testing.assert_close(attention(scores, v, padding_mask=mask)[:, :, real], expected)


@pytest.mark.parametrize("form", ["naive", "chunked", "recurrent"])
def test_before_the_first_real_step_the_output_is_zero(form):
    scores, v = inputs((3, 1, 80, 3), torch.float32)
    mask = torch.zeros(3, 80, dtype=torch.bool)
    mask[0, :53] = True
    mask[1] = True
    if form == "recurrent":
        out, _ = by_steps(scores, v, mask)
    else:
        out = dict(zip(FORM_IDS, FORMS, strict=True))[form](scores, v, padding_mask=mask)
    assert out[0, :, :53].abs().max() == 0
    assert out[0, :, 53:].abs().min() > 0
    assert out[1].abs().max() == 0
    for gradient in gradients(out, scores, v):
        assert torch.isfinite(gradient).all()
        assert gradient[1].abs().max() == 0


JUMPS = {
    "rise by 80 inside a block": lambda t: 80.0 * (t >= 20),
    "rise by 80 between blocks": lambda t: 80.0 * (t >= 32),
    "fall by 80 inside a block": lambda t: -80.0 * (t >= 20),
    "fall by 80 between blocks": lambda t: -80.0 * (t >= 32),
    "rise by 80 at each step": lambda t: 80.0 * t,
    "fall by 80 at each step": lambda t: -80.0 * t,
    "one step far above": lambda t: 80.0 * (t == 40),
    "one step far below": lambda t: -80.0 * (t == 0),
    "up and down": lambda t: 80.0 * (t % 7 - t % 5),
}


@pytest.mark.parametrize("form", ["chunked", "recurrent"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=["fp32", "bf16", "fp16"])
@pytest.mark.parametrize("jump", JUMPS.values(), ids=JUMPS)
def test_stable_for_large_jumps_of_the_scores(jump, dtype, form):
    scores, v = (x.detach() for x in inputs((1, 2, 100, 4)))
    scores = (scores + jump(torch.arange(100))).to(dtype).requires_grad_()
    v = v.to(dtype).requires_grad_()
    if form == "chunked":
        actual = chunked.prefix_softmax(scores, v, block_length=32)
    else:
        actual, _ = by_steps(scores, v)
    exact = [x.detach().double().requires_grad_() for x in (scores, v)]
    expected = naive.prefix_softmax(*exact)
    torch.testing.assert_close(actual.double(), expected, **TOLERANCE[dtype])
    for ours, theirs in zip(gradients(actual, scores, v), gradients(expected, *exact), strict=True):
        assert torch.isfinite(ours).all()
        scale = theirs.abs().max().clamp(min=1).item()
        torch.testing.assert_close(ours.double() / scale, theirs / scale, **TOLERANCE[dtype])


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=["fp32", "bf16", "fp16"])
def test_precision_after_100000_steps(dtype):
    # All values are positive and far from zero, so that the numerator grows linearly.
    scores, v = (x.detach() for x in inputs((1, 1, 100_000, 4)))
    scores, v = scores.to(dtype), (v.abs() * 20).to(dtype)
    expected = chunked.prefix_softmax(scores.double(), v.double())
    actual = chunked.prefix_softmax(scores, v)
    worst = ((actual.double() - expected).abs() / expected.abs()).max()
    assert worst < {torch.float32: 2e-6, torch.bfloat16: 5e-3, torch.float16: 1e-3}[dtype]


def test_a_step_is_exact_after_100000_steps():
    # An equal value does not change the mean of 100,000; a value with a far higher score replaces it.
    equal = torch.full((1, 1, 1, 2), 0.1)
    state = recurrent.RunningSoftmax(torch.full((1, 1, 1), 1e5, dtype=torch.float64).log(), equal)
    _, after = recurrent.prefix_softmax_step(torch.zeros(1, 1, 1), equal, state)
    assert after.log_denominator.exp().item() == pytest.approx(100_001, rel=1e-12)
    assert after.mean.equal(state.mean)
    out, _ = recurrent.prefix_softmax_step(torch.full((1, 1, 1), 80.0), 3 * equal, after)
    assert out.equal(3 * equal)


def test_memory_has_no_pairs_of_steps():
    steps, size = 4096, 64
    scores, v = inputs((1, 1, steps, size), torch.float32)
    with LargestTensor() as largest:
        chunked.prefix_softmax(scores, v).sum().backward()
    assert largest.elements <= steps * max(size + 1, chunked.default_block_length(size))


@pytest.mark.parametrize(("size", "length"), [(1, 32), (32, 32), (48, 64), (64, 64), (65, 128), (1024, 128)])
def test_block_length_follows_the_value_size(size, length):
    assert chunked.default_block_length(size) == length


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=["bf16", "fp16"])
def test_a_state_of_half_precision_is_kept_in_higher_precision(dtype):
    log_denominator, mean = recurrent.initial_running_softmax(randn(2, 3, 1, 4, dtype=dtype))
    assert log_denominator.shape == (2, 3, 1) and log_denominator.dtype == torch.float64
    assert mean.shape == (2, 3, 1, 4) and mean.dtype == torch.float32


def test_the_denominator_of_many_large_scores_keeps_its_precision():
    # The last steps add 5e-5 to a logarithm of about 1,010, where numbers of fp32 are 6e-5 apart.
    scores = 1000 + randn(20_000, seed=1, grad=False)
    state = recurrent.initial_running_softmax(torch.zeros(1, 1, 1, 1))
    for score in scores.float():
        state = recurrent.advance(score.view(1, 1, 1), torch.zeros(1, 1, 1, 1), state)
    assert state.log_denominator.item() == pytest.approx(scores.float().double().logsumexp(0).item(), abs=1e-9)
