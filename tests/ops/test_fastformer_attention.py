import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st

from fairseq_luna.ops.fastformer_attention import FastformerMaps, chunked, fused, naive, recurrent
from largest_tensor import LargestTensor
from numeric import EVERY_DTYPE, PADDED, TOLERANCE, assert_gradients_close, gradients, randn, random_padding

SHAPES = [(1, 1, 1, 1), (2, 3, 7, 4), (2, 3, 65, 16), (1, 2, 140, 8), (1, 1, 600, 2)]
SHAPE_IDS = [f"B{b}-H{h}-T{t}-D{d}" for b, h, t, d in SHAPES]
PAIRS = {
    "bidirectional": (fused.fastformer_attention, naive.fastformer_attention),
    "causal": (chunked.fastformer_causal_attention, naive.fastformer_causal_attention),
}
PAIR = pytest.mark.parametrize(("fast", "specified"), PAIRS.values(), ids=PAIRS)
CAUSAL = pytest.mark.parametrize("attention", PAIRS["causal"], ids=["chunked", "naive"])


def inputs(shape, dtype=torch.float64, seed=0):
    """Random q, k, v and weights of both scores."""
    _, heads, _, size = shape
    score_shape = (heads, heads, size)
    return (
        *(randn(*shape, dtype=dtype, seed=seed + i) for i in range(3)),
        *(randn(*score_shape, dtype=dtype, seed=seed + i) for i in range(2)),
    )


def maps(query_weight, key_weight, combine=torch.mul):
    """Scores from all channels of a step; ``combine`` for keys and for values."""
    return FastformerMaps(
        query_score=lambda x: torch.einsum("bhtd,ghd->bgt", x, query_weight),
        key_score=lambda x: torch.einsum("bhtd,ghd->bgt", x, key_weight),
        combine_key=combine,
        combine_value=combine,
    )


def by_steps(q, k, v, learned, mask=None):
    """u and the global queries of the recurrent form, one step at a time, and its last state."""
    state, outputs = recurrent.initial_state(q), []
    for t in range(q.shape[2]):
        step = slice(t, t + 1)
        padded = None if mask is None else mask[:, step]
        u, global_query, state = recurrent.fastformer_causal_attention_step(
            q[:, :, step], k[:, :, step], v[:, :, step], learned, state, padding_mask=padded
        )
        outputs.append((u, global_query))
    return *(torch.cat(parts, dim=2) for parts in zip(*outputs, strict=True)), state


@PAIR
@pytest.mark.parametrize("combine", [torch.mul, torch.add], ids=["product", "sum"])
@PADDED
@EVERY_DTYPE
@pytest.mark.parametrize("shape", SHAPES, ids=SHAPE_IDS)
def test_fast_equals_naive(shape, dtype, padded, combine, fast, specified):
    q, k, v, *weights = args = inputs(shape, dtype)
    mask = random_padding(shape[0], shape[2], share=0.3) if padded else None
    expected = specified(q, k, v, maps(*weights, combine), padding_mask=mask)
    actual = fast(q, k, v, maps(*weights, combine), padding_mask=mask)
    assert {x.dtype for x in actual} == {dtype}
    torch.testing.assert_close(actual, expected, **TOLERANCE[dtype])
    assert_gradients_close(actual[0], expected[0], args, dtype)


@settings(max_examples=40, deadline=None)
@given(
    shape=st.tuples(*(st.integers(1, high) for high in (3, 3, 50, 8))),
    share=st.sampled_from([0.0, 0.3, 1.0]),
    seed=st.integers(0, 1000),
)
def test_all_forms_agree(shape, share, seed):
    q, k, v, *weights = inputs(shape, seed=seed)
    learned, mask = maps(*weights), random_padding(shape[0], shape[2], share=share, seed=seed)
    for fast, specified in PAIRS.values():
        expected = specified(q, k, v, learned, padding_mask=mask)
        torch.testing.assert_close(fast(q, k, v, learned, padding_mask=mask), expected)
    at_once = recurrent.fastformer_causal_attention_step(
        q, k, v, learned, recurrent.initial_state(q), padding_mask=mask
    )
    torch.testing.assert_close(at_once[:2], expected)


@EVERY_DTYPE
def test_recurrent_equals_naive_one_step_at_a_time(dtype):
    q, k, v, *weights = inputs((2, 3, 40, 8), dtype)
    mask = random_padding(2, 40, share=0.3)
    mask[0, :3] = True
    *actual, state = by_steps(q, k, v, maps(*weights), mask)
    expected = naive.fastformer_causal_attention(q, k, v, maps(*weights), padding_mask=mask)
    torch.testing.assert_close(tuple(actual), expected, **TOLERANCE[dtype])
    assert [x.shape for x in state] == [x.shape for x in recurrent.initial_state(q)]


@CAUSAL
def test_no_step_depends_on_a_later_one(attention):
    q, k, v, *weights = inputs((1, 2, 150, 4))
    u, global_query = attention(q, k, v, maps(*weights))
    for gradient in torch.autograd.grad(u[:, :, 70].square().sum(), (q, k, v), retain_graph=True):
        assert gradient[:, :, 71:].abs().max() == 0
        assert gradient[:, :, 70].abs().max() > 0
    (gradient,) = torch.autograd.grad(global_query[:, :, 70].square().sum(), q)
    assert gradient[:, :, 71:].abs().max() == 0


@pytest.mark.parametrize(
    "attention", [form for pair in PAIRS.values() for form in pair], ids=["fused", "naive", "chunked", "naive-causal"]
)
def test_padded_steps_have_no_effect(attention):
    q, k, v, *weights = inputs((1, 2, 90, 4))
    mask = random_padding(1, 90, share=0.4)
    mask[0, :5] = True
    real = ~mask[0]
    expected = attention(*(x[:, :, real] for x in (q, k, v)), maps(*weights))[0]
    actual = attention(q, k, v, maps(*weights), padding_mask=mask)[0]
    torch.testing.assert_close(actual[:, :, real], expected)


@PAIR
@EVERY_DTYPE
def test_output_and_gradients_are_zero_if_all_is_padding(dtype, fast, specified):
    q, k, v, *weights = inputs((2, 2, 40, 4), dtype)
    mask = torch.tensor([[False], [True]]).expand(2, 40)
    for attention in (fast, specified):
        u, global_query = attention(q, k, v, maps(*weights), padding_mask=mask)
        assert u[1].abs().max() == global_query[1].abs().max() == 0
        assert u[0].abs().max() > 0
        for gradient in gradients(u, q, k, v):
            assert torch.isfinite(gradient).all()
            assert gradient[1].abs().max() == 0


def test_the_softmax_is_over_time_and_per_head():
    q, k, v, *weights = inputs((2, 3, 20, 4))
    scores = torch.einsum("bhtd,ghd->bgt", q, weights[0]) / 2
    for attention in (fused.fastformer_attention, naive.fastformer_attention):
        _, global_query = attention(q, k, v, maps(*weights))
        for head in range(3):
            expected = scores[:, head].softmax(dim=1)[:, None] @ q[:, head]
            torch.testing.assert_close(global_query[:, head], expected)


def test_causal_and_bidirectional_differ_as_documented():
    q, k, v, *weights = inputs((2, 2, 30, 4))
    whole, pooled = naive.fastformer_attention(q, k, v, maps(*weights))
    causal, running = naive.fastformer_causal_attention(q, k, v, maps(*weights))
    torch.testing.assert_close(running[:, :, -1:], pooled)
    assert (causal[:, :, -1] - whole[:, :, -1]).abs().max() > 0.01
    one = [x[:, :, :1] for x in (q, k, v)]
    torch.testing.assert_close(
        naive.fastformer_causal_attention(*one, maps(*weights)), naive.fastformer_attention(*one, maps(*weights))
    )


@PAIR
def test_dropout_drops_the_same_weights_in_both_forms(fast, specified):
    q, k, v, *weights = inputs((2, 2, 60, 4))
    results = []
    for form in (fast, specified):
        torch.manual_seed(5)
        results.append(form(q, k, v, maps(*weights), dropout_p=0.5))
    torch.testing.assert_close(*results)
    assert (results[0][0] - fast(q, k, v, maps(*weights))[0]).abs().max() > 0.01


@CAUSAL
def test_a_dropped_step_is_dropped_for_all_later_steps_and_the_denominator_kept(attention, monkeypatch):
    q, k, v, *weights = inputs((1, 2, 50, 4))
    left = 2.0 * (torch.rand(1, 2, 50, generator=torch.Generator().manual_seed(0)) < 0.5).double()
    monkeypatch.setattr(F, "dropout", lambda ones, p: left * ones if p == 0.5 else None)
    _, global_query = attention(q, k, v, maps(*weights), dropout_p=0.5)
    scores = torch.einsum("bhtd,ghd->bgt", q, weights[0]) / 2
    for t in (0, 17, 49):
        kept = scores[:, :, : t + 1].softmax(-1) * left[:, :, : t + 1]
        torch.testing.assert_close(global_query[:, :, t], (kept[..., None] * q[:, :, : t + 1]).sum(2))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=["bf16", "fp16"])
def test_dropout_keeps_the_dtype(dtype):
    q, k, v, *weights = inputs((2, 2, 20, 4), dtype)
    drop = {"dropout_p": 0.5}
    for form in (form for pair in PAIRS.values() for form in pair):
        assert {x.dtype for x in form(q, k, v, maps(*weights), **drop)} == {dtype}
    u, _, state = recurrent.fastformer_causal_attention_step(
        q, k, v, maps(*weights), recurrent.initial_state(q), **drop
    )
    assert u.dtype == dtype and state.query_mean.dtype == state.key_mean.dtype == torch.float32


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=["fp32", "bf16", "fp16"])
@pytest.mark.parametrize("fast", [fast for fast, _ in PAIRS.values()], ids=PAIRS)
def test_precision_at_100000_steps(fast, dtype):
    q, k, v, *weights = (x.detach() for x in inputs((1, 1, 100_000, 8), dtype))
    expected, _ = fast(*(x.double() for x in (q, k, v)), maps(*(x.double() for x in weights)))
    actual, _ = fast(q, k, v, maps(*weights))
    error = (actual.double() - expected).abs().max() / expected.abs().max()
    assert error < {torch.float32: 2e-5, torch.bfloat16: 3e-2, torch.float16: 4e-3}[dtype]


@pytest.mark.parametrize("fast", [fast for fast, _ in PAIRS.values()], ids=PAIRS)
def test_the_mean_of_100000_equal_vectors_is_that_vector(fast):
    # Every weight except the first is rounded in fp32, always in the same direction.
    q = torch.full((1, 1, 100_000, 2), 0.1)
    score = torch.full((1, 1, 100_000), -2.302585 * 2**0.5)
    score[:, :, 0] = 0
    learned = FastformerMaps(
        query_score=lambda _: score, key_score=lambda _: score, combine_key=torch.add, combine_value=torch.add
    )
    u, global_query = fast(q, q, q, learned)
    torch.testing.assert_close(global_query[:, :, -1:], q[:, :, :1], rtol=5e-5, atol=0)
    torch.testing.assert_close(u, 3 * q, rtol=5e-5, atol=0)


def test_memory_is_linear_in_the_length():
    steps, size = 4096, 64
    q, k, v, *weights = inputs((1, 1, steps, size), torch.float32)
    with LargestTensor() as largest:
        chunked.fastformer_causal_attention(q, k, v, maps(*weights))[0].sum().backward()
    assert largest.elements <= steps * (size + 1)
