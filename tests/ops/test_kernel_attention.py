import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fairseq_luna.ops import feature_maps
from fairseq_luna.ops.kernel_attention import chunked, fused, naive, recurrent
from fairseq_luna.ops.kernel_attention.shared import NORMALISERS
from largest_tensor import LargestTensor
from numeric import (
    EVERY_DTYPE,
    PADDED,
    TOLERANCE,
    assert_gradients_close,
    gradients,
    mixed_padding,
    randn,
    random_padding,
)

SHAPES = [(1, 1, 1, 1, 1), (2, 3, 7, 4, 5), (2, 3, 65, 16, 4), (1, 2, 150, 8, 8)]
SHAPE_IDS = [f"B{b}-H{h}-T{t}-R{r}-E{e}" for b, h, t, r, e in SHAPES]
EVERY_NORMALISER = pytest.mark.parametrize("normaliser", NORMALISERS)
CAUSAL = pytest.mark.parametrize(
    "attention", [naive.kernel_causal_attention, chunked.kernel_causal_attention], ids=["naive", "chunked"]
)
BIDIRECTIONAL = pytest.mark.parametrize(
    "attention", [naive.kernel_attention, fused.kernel_attention], ids=["naive", "fused"]
)
ALL_FORMS = pytest.mark.parametrize(
    "attention",
    [naive.kernel_attention, fused.kernel_attention, naive.kernel_causal_attention, chunked.kernel_causal_attention],
    ids=["naive", "fused", "naive-causal", "chunked"],
)


def inputs(shape, normaliser, dtype=torch.float64, seed=0, source=None):
    """Features of queries and keys, positive except for "bounded", and values; ``source`` is the length of the keys."""
    batch, heads, steps, size, value_size = shape
    source = source or steps
    q = randn(batch, heads, steps, size, seed=seed, grad=False)
    k = randn(batch, heads, source, size, seed=seed + 1, grad=False)
    v = randn(batch, heads, source, value_size, seed=seed + 2, grad=False)
    if normaliser == "bounded":
        q, k = q / 4, k / 4
    else:
        q, k = q.softmax(-1), k.exp()
    return [x.to(dtype).requires_grad_() for x in (q, k, v)]


def step_by_step(q, k, v, **options):
    """One step at a time, and the size of the state after each."""
    padding_mask = options.pop("padding_mask", None)
    state, outputs, sizes = recurrent.initial_kernel_mean(k, v), [], set()
    for t in range(q.shape[2]):
        step = slice(t, t + 1)
        padded = None if padding_mask is None else padding_mask[:, step]
        y, state = recurrent.kernel_causal_attention_step(
            q[:, :, step], k[:, :, step], v[:, :, step], state, padding_mask=padded, **options
        )
        outputs.append(y)
        sizes.add(tuple(x.shape for x in state))
    assert len(sizes) == 1
    return torch.cat(outputs, dim=2), state


@PADDED
@EVERY_NORMALISER
@EVERY_DTYPE
@pytest.mark.parametrize("shape", SHAPES, ids=SHAPE_IDS)
def test_chunked_equals_naive(shape, dtype, normaliser, padded):
    args = inputs(shape, normaliser, dtype)
    mask = random_padding(shape[0], shape[2], share=0.3) if padded else None
    expected = naive.kernel_causal_attention(*args, normaliser=normaliser, padding_mask=mask)
    actual = chunked.kernel_causal_attention(*args, normaliser=normaliser, padding_mask=mask)
    assert actual.dtype == dtype
    torch.testing.assert_close(actual, expected, **TOLERANCE[dtype])
    assert_gradients_close(actual, expected, args, dtype)


@PADDED
@EVERY_NORMALISER
@EVERY_DTYPE
@pytest.mark.parametrize("source", [5, 40])
@pytest.mark.parametrize("shape", SHAPES, ids=SHAPE_IDS)
def test_fused_equals_naive(shape, source, dtype, normaliser, padded):
    args = inputs(shape, normaliser, dtype, source=source)
    mask = random_padding(shape[0], source, share=0.3) if padded else None
    expected = naive.kernel_attention(*args, normaliser=normaliser, padding_mask=mask)
    actual = fused.kernel_attention(*args, normaliser=normaliser, padding_mask=mask)
    assert actual.dtype == dtype
    torch.testing.assert_close(actual, expected, **TOLERANCE[dtype])
    assert_gradients_close(actual, expected, args, dtype)


@settings(max_examples=40, deadline=None)
@given(
    shape=st.tuples(*(st.integers(1, high) for high in (3, 2, 60, 8, 6))),
    normaliser=st.sampled_from(NORMALISERS),
    share=st.sampled_from([0.0, 0.3, 1.0]),
    seed=st.integers(0, 1000),
)
def test_all_forms_agree(shape, normaliser, share, seed):
    q, k, v = inputs(shape, normaliser, seed=seed)
    options = {"normaliser": normaliser, "padding_mask": random_padding(shape[0], shape[2], share=share, seed=seed)}
    expected = naive.kernel_causal_attention(q, k, v, **options)
    torch.testing.assert_close(chunked.kernel_causal_attention(q, k, v, **options), expected)
    y, state = recurrent.kernel_causal_attention_step(q, k, v, recurrent.initial_kernel_mean(k, v), **options)
    torch.testing.assert_close(y, expected)
    whole = fused.kernel_mean_of(k, v, padding_mask=options["padding_mask"])
    torch.testing.assert_close(tuple(whole), tuple(state))
    # The last step sees all of them.
    last = fused.read_kernel_mean(q[:, :, -1:], whole, normaliser=normaliser, causal=True)
    torch.testing.assert_close(last, expected[:, :, -1:])
    torch.testing.assert_close(fused.kernel_attention(q, k, v, **options), naive.kernel_attention(q, k, v, **options))


@EVERY_NORMALISER
@EVERY_DTYPE
def test_one_step_at_a_time_equals_the_whole(normaliser, dtype):
    args = [x.detach() for x in inputs((3, 2, 512, 6, 4), normaliser, dtype)]
    options = {"normaliser": normaliser, "padding_mask": mixed_padding(512)}
    found, state = step_by_step(*args, **options)
    torch.testing.assert_close(found, chunked.kernel_causal_attention(*args, **options), **TOLERANCE[dtype])
    assert state.mean.shape == (3, 2, 6, 5) and state.steps.shape == (3,)
    assert {x.dtype for x in state} == {torch.float64 if dtype == torch.float64 else torch.float32}


@CAUSAL
@EVERY_NORMALISER
def test_no_step_depends_on_a_later_one(attention, normaliser):
    q, k, v = inputs((1, 2, 150, 4, 4), normaliser)
    out = attention(q, k, v, normaliser=normaliser)[:, :, 70]
    for seen in torch.autograd.grad((out * torch.linspace(1, 3, 4)).sum(), (q, k, v)):
        assert seen[:, :, 71:].abs().max() == 0
        assert seen[:, :, 70].abs().min() > 0


@ALL_FORMS
@EVERY_NORMALISER
def test_padded_steps_have_no_effect(attention, normaliser):
    q, k, v = inputs((3, 2, 60, 4, 4), normaliser)
    mask = mixed_padding(60)
    found = attention(q, k, v, normaliser=normaliser, padding_mask=mask)
    for row in range(3):
        real = ~mask[row]
        expected = attention(*(x[row : row + 1, :, real] for x in (q, k, v)), normaliser=normaliser)
        torch.testing.assert_close(found[row : row + 1, :, real], expected)


@ALL_FORMS
@EVERY_NORMALISER
def test_a_sentence_of_padding_gives_zeros(attention, normaliser):
    args = inputs((2, 2, 40, 3, 3), normaliser, torch.float32)
    mask = torch.tensor([[True], [False]]).expand(2, 40)
    out = attention(*args, normaliser=normaliser, padding_mask=mask)
    assert out[0].abs().max() == 0 and out[1].abs().min() > 0
    for gradient in gradients(out, *args):
        assert gradient[0].abs().max() == 0 and torch.isfinite(gradient).all()


@CAUSAL
@EVERY_NORMALISER
def test_before_the_first_real_step_the_output_is_zero(attention, normaliser):
    args = inputs((1, 2, 40, 3, 3), normaliser, torch.float32)
    out = attention(*args, normaliser=normaliser, padding_mask=(torch.arange(40) < 13)[None])
    assert out[:, :, :13].abs().max() == 0 and out[:, :, 13:].abs().min() > 0
    assert all(torch.isfinite(gradient).all() for gradient in gradients(out, *args))


@ALL_FORMS
def test_a_bounded_denominator_is_at_least_one(attention):
    one = torch.ones(1, 1, 4, 1, dtype=torch.float64)
    signed = torch.tensor([0.5, -3.0, 1.0, 4.0], dtype=torch.float64).view(1, 1, 4, 1)
    found = attention(one, signed, one, normaliser="bounded").flatten().tolist()
    sums = [0.5, -2.5, -1.5, 2.5] if "causal" in attention.__name__ else [2.5] * 4
    assert found == pytest.approx([total / max(total, 1.0) for total in sums])


@BIDIRECTIONAL
def test_a_bound_is_of_the_size_of_a_negative_sum(attention):
    """As RFA's authors divide: 400 keys on the other side of a query have a sum of -4, and the output is minus v."""
    query, keys = torch.tensor([1.0, 0.0]).view(1, 1, 1, 2), torch.tensor([0.0, 1.0]).expand(1, 1, 400, 2)
    matrix, v = torch.tensor([[[math.pi, 0.0]]]), torch.full((1, 1, 400, 1), 0.49)
    q, k = (feature_maps.fourier_features(x.double(), matrix) for x in (query, keys))
    assert (q @ k.mT).sum().item() == pytest.approx(-4, rel=1e-4)
    assert attention(q, k, v.double(), normaliser="bounded").item() == pytest.approx(-0.49)


@pytest.mark.parametrize(
    "forms",
    [
        (naive.kernel_attention, fused.kernel_attention),
        (naive.kernel_causal_attention, chunked.kernel_causal_attention),
    ],
    ids=["bidirectional", "causal"],
)
@EVERY_NORMALISER
def test_dropout_drops_the_same_steps_in_both_forms(forms, normaliser):
    q, k, v = inputs((2, 3, 60, 4, 3), normaliser)
    results = []
    for form in forms:
        torch.manual_seed(5)
        results.append(form(q, k, v, normaliser=normaliser, dropout_p=0.5))
    torch.testing.assert_close(*results)
    # The dropped steps are missing from the values, and still in the denominators.
    torch.manual_seed(5)
    kept = torch.nn.functional.dropout(torch.ones(2, 3, 60, dtype=torch.float64), 0.5)[..., None]
    torch.testing.assert_close(results[1], forms[0](q, k, kept * v, normaliser=normaliser))


@PADDED
@EVERY_NORMALISER
def test_the_weights_give_the_output(normaliser, padded):
    q, k, v = inputs((2, 3, 11, 4, 5), normaliser, source=7)
    mask = random_padding(2, 7, share=0.4) if padded else None
    state = fused.kernel_mean_of(k, v, padding_mask=mask)
    real_k = k if mask is None else k.masked_fill(mask[:, None, :, None], 0)
    weights = fused.kernel_weights(q, real_k, state, normaliser=normaliser)
    expected = naive.kernel_attention(q, k, v, normaliser=normaliser, padding_mask=mask)
    torch.testing.assert_close(weights @ v, expected)
    if normaliser == "sum":
        torch.testing.assert_close(weights.sum(-1), torch.ones(2, 3, 11, dtype=torch.float64))
    if mask is not None:
        assert weights.masked_select(mask[:, None, None, :]).abs().max() == 0


@EVERY_NORMALISER
def test_memory_has_no_state_per_step(normaliser):
    steps, features, size = 2048, 128, 32
    args = inputs((1, 1, steps, features, size), normaliser, torch.float32)
    with LargestTensor() as largest:
        chunked.kernel_causal_attention(*args, normaliser=normaliser).sum().backward()
    assert largest.elements <= steps * features * (size + 1) / size
    with LargestTensor() as largest:
        fused.kernel_attention(*args, normaliser=normaliser).sum().backward()
    assert largest.elements <= steps * features


FOUR = {
    "linear": (feature_maps.elu_features, feature_maps.elu_features, "sum"),
    "performer": (
        lambda x: feature_maps.positive_query_features(x, directions(x)),
        lambda x: feature_maps.positive_key_features(x, directions(x)),
        "sum",
    ),
    "rfa": (
        lambda x: feature_maps.fourier_features(x, directions(x)[None]),
        lambda x: feature_maps.fourier_features(x, directions(x)[None]),
        "bounded",
    ),
    "efficient": (feature_maps.softmax_features, feature_maps.exponential_features, "each feature"),
}
EVERY_ATTENTION = pytest.mark.parametrize(("of_query", "of_key", "normaliser"), FOUR.values(), ids=FOUR)


def directions(x):
    return randn(16, x.shape[-1], grad=False, seed=9).to(x)


@EVERY_ATTENTION
@pytest.mark.parametrize("scale", [0.0, 1e-4, 1.0, 1e4])
def test_finite_at_any_scale(of_query, of_key, normaliser, scale):
    q, k, v = ((randn(1, 2, 300, 8, seed=seed, grad=False) * scale).float().requires_grad_() for seed in range(3))
    for attention in (chunked.kernel_causal_attention, fused.kernel_attention):
        out = attention(of_query(q), of_key(k), v, normaliser=normaliser)
        assert torch.isfinite(out).all()
        assert all(torch.isfinite(gradient).all() for gradient in gradients(out, q, k, v))


@EVERY_ATTENTION
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=["fp32", "bf16", "fp16"])
def test_precision_at_100000_steps(of_query, of_key, normaliser, dtype):
    q, k, v = (randn(1, 1, 100_000, 8, seed=seed, grad=False).to(dtype) for seed in range(3))
    bound = {torch.float32: 1e-5, torch.bfloat16: 5e-3, torch.float16: 1e-3}[dtype]
    expected = chunked.kernel_causal_attention(
        of_query(q.double()), of_key(k.double()), v.double(), normaliser=normaliser
    )
    found = chunked.kernel_causal_attention(of_query(q), of_key(k), v, normaliser=normaliser)
    assert (found.double() - expected).abs().max() < bound * expected.abs().max()
    # Generation, from the state after all steps but one; and bidirectional, for the last query.
    before = fused.kernel_mean_of(of_key(k[:, :, :-1]), v[:, :, :-1])
    q, last = of_query(q[:, :, -1:]), expected[:, :, -1:]
    one, _ = recurrent.kernel_causal_attention_step(
        q, of_key(k[:, :, -1:]), v[:, :, -1:], before, normaliser=normaliser
    )
    whole = fused.kernel_attention(q, of_key(k), v, normaliser=normaliser)
    for found in (one, whole):
        assert (found.double() - last).abs().max() < bound * expected.abs().max()


def test_equal_steps_stay_exact_for_100000_steps():
    # The sums of weights grow linearly; the output is the value.
    q, k, v = (torch.full((1, 1, 100_000, 4), value) for value in (0.7, 3.0, 5.0))
    for normaliser in NORMALISERS:
        torch.testing.assert_close(
            chunked.kernel_causal_attention(q, k, v, normaliser=normaliser),
            v if normaliser != "each feature" else v * 2.8,
            rtol=2e-5,
            atol=0,
        )


def test_the_constant_of_positive_queries_and_their_norm_cancel():
    """Dividing by the largest feature of a query changes neither the attention nor its gradients."""
    q, k, v = (randn(2, 3, 40, 8, seed=seed) for seed in range(3))
    w = directions(q)

    def published(x):
        x = x / 8**0.25
        return (x @ w.mT - x.square().sum(-1, keepdim=True) / 2).exp() / 4

    expected = naive.kernel_causal_attention(published(q), published(k), v)
    of_query, of_key, _ = FOUR["performer"]
    actual = chunked.kernel_causal_attention(of_query(q), of_key(k), v)
    torch.testing.assert_close(actual, expected)
    assert_gradients_close(actual, expected, (q, k, v), torch.float64)


def test_causal_efficient_attention_is_a_softmax_over_the_steps_so_far():
    q, k, v = (randn(2, 3, 40, 8, seed=seed) for seed in range(3))
    of_query, of_key, normaliser = FOUR["efficient"]
    found = chunked.kernel_causal_attention(of_query(q), of_key(k), v, normaliser=normaliser)
    for t in (0, 17, 39):
        context = k[:, :, : t + 1].softmax(2).mT @ v[:, :, : t + 1]
        torch.testing.assert_close(found[:, :, t], (q[:, :, t, None].softmax(-1) @ context)[:, :, 0])


@BIDIRECTIONAL
def test_efficient_attention_is_two_softmaxes(attention):
    q, k, v = (randn(2, 3, 40, 8, seed=seed) for seed in range(3))
    of_query, of_key, normaliser = FOUR["efficient"]
    expected = q.softmax(-1) @ (k.softmax(2).mT @ v)
    torch.testing.assert_close(attention(of_query(q), of_key(k), v, normaliser=normaliser), expected)


def test_an_unknown_normaliser_is_refused():
    args = inputs((1, 1, 2, 2, 2), "sum")
    for attention in (fused.kernel_attention, chunked.kernel_causal_attention):
        with pytest.raises(ValueError, match="normaliser max: choose one of sum, bounded, each feature"):
            attention(*args, normaliser="max")
