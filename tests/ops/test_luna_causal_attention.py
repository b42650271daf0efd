import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils._python_dispatch import TorchDispatchMode

from fairseq_luna.ops.luna_causal_attention import chunked, naive, recurrent
from fairseq_luna.ops.luna_causal_attention.shared import pack_activation, pack_scores
from largest_tensor import LargestTensor
from numeric import EVERY_DTYPE, PADDED, TOLERANCE, assert_gradients_close, gradients, randn, random_padding

SHAPES = [(1, 1, 1, 1, 1), (2, 3, 7, 4, 5), (2, 3, 65, 16, 4), (1, 2, 150, 8, 8)]
SHAPE_IDS = [f"B{b}-H{h}-T{t}-D{d}-L{length}" for b, h, t, d, length in SHAPES]
ACTIVATIONS = ["softplus", "elu"]


def inputs(shape, dtype=torch.float64, seed=0):
    """Random q, k, v, pq, pk."""
    batch, heads, steps, size, slots = shape
    sizes = [steps, steps, steps, slots, steps]
    return tuple(randn(batch, heads, n, size, dtype=dtype, seed=seed + i) for i, n in enumerate(sizes))


def masks(shape, seed=0, share=0.3):
    """Padding of steps at any position, and of the last slots; at least one slot is real."""
    batch, _, steps, _, slots = shape
    real_slots = torch.randint(1, slots + 1, (batch, 1), generator=torch.Generator().manual_seed(seed))
    return {
        "padding_mask": random_padding(batch, steps, share=share, seed=seed),
        "packed_padding_mask": torch.arange(slots) >= real_slots,
    }


@PADDED
@pytest.mark.parametrize("tied", [True, False], ids=["tied", "untied"])
@pytest.mark.parametrize("activation", ACTIVATIONS)
@EVERY_DTYPE
@pytest.mark.parametrize("shape", SHAPES, ids=SHAPE_IDS)
def test_chunked_equals_naive(shape, dtype, activation, tied, padded):
    q, k, v, pq, pk = inputs(shape, dtype)
    args = (q, k, k if tied else v, pq, pk)
    options = {"activation": activation, **(masks(shape) if padded else {})}
    expected, expected_weights = naive.luna_causal_attention(*args, **options)
    actual, weights = chunked.luna_causal_attention(*args, **options)
    assert actual.dtype == dtype and weights.dtype == expected_weights.dtype
    torch.testing.assert_close(weights, expected_weights, **TOLERANCE[dtype])
    torch.testing.assert_close(actual, expected, **TOLERANCE[dtype])
    assert_gradients_close(actual, expected, args, dtype)


def test_tied_keys_and_values_have_one_state():
    class Products(TorchDispatchMode):
        count = 0

        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            self.count += func is torch.ops.aten.bmm.default
            return func(*args, **(kwargs or {}))

    q, k, v, pq, pk = inputs((1, 2, 150, 8, 8))
    with Products() as of_one:
        chunked.luna_causal_attention(q, k, k, pq, pk)
    with Products() as of_both:
        chunked.luna_causal_attention(q, k, v, pq, pk)
    # The product, and the sum over the blocks.
    assert of_both.count - of_one.count == 2


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize(("dtype", "bound"), [(torch.bfloat16, 0.01), (torch.float16, 0.002)], ids=["bf16", "fp16"])
def test_gradients_of_half_precision_stay_near_the_exact_ones(dtype, bound, activation):
    args = inputs((2, 3, 65, 16, 4), dtype)
    exact = [x.detach().double().requires_grad_() for x in args]
    expected = gradients(naive.luna_causal_attention(*exact, activation=activation)[0], *exact)
    found = gradients(chunked.luna_causal_attention(*args, activation=activation)[0], *args)
    for ours, theirs in zip(found, expected, strict=True):
        assert (ours.double() - theirs).abs().max() < bound * theirs.abs().max()


@settings(max_examples=40, deadline=None)
@given(
    shape=st.tuples(*(st.integers(1, high) for high in (3, 2, 60, 8, 6))),
    activation=st.sampled_from(ACTIVATIONS),
    share=st.sampled_from([0.0, 0.3, 1.0]),
    seed=st.integers(0, 1000),
)
def test_all_forms_agree(shape, activation, share, seed):
    q, k, v, pq, pk = inputs(shape, seed=seed)
    padding = masks(shape, seed, share)
    expected = naive.luna_causal_attention(q, k, v, pq, pk, activation=activation, **padding)
    torch.testing.assert_close(
        chunked.luna_causal_attention(q, k, v, pq, pk, activation=activation, **padding), expected
    )
    scores = pack_scores(pq, pk)
    y, weights, state = recurrent.luna_causal_attention_step(
        q, k, v, scores, recurrent.initial_state(pq, tied=False), activation=activation, **padding
    )
    torch.testing.assert_close((y, weights), expected)
    whole = recurrent.state_after(k, v, scores, tied=False, activation=activation, padding_mask=padding["padding_mask"])
    torch.testing.assert_close(tuple(whole), tuple(state))


@EVERY_DTYPE
@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("tied", [True, False], ids=["tied", "untied"])
def test_recurrent_equals_naive_one_step_at_a_time(tied, activation, dtype):
    shape = (2, 3, 40, 8, 5)
    q, k, v, pq, pk = inputs(shape, dtype)
    if tied:
        v = k
    scores = pack_scores(pq, pk)
    padding = masks(shape)
    state = recurrent.initial_state(pq, tied=tied)
    sizes = {name: tensor.shape for name, tensor in state._asdict().items()}
    outputs = []
    for t in range(40):
        step = slice(t, t + 1)
        y, _, state = recurrent.luna_causal_attention_step(
            *(x[:, :, step] for x in (q, k, v, scores)),
            state,
            activation=activation,
            padding_mask=padding["padding_mask"][:, step],
            packed_padding_mask=padding["packed_padding_mask"],
        )
        outputs.append(y)
    expected, _ = naive.luna_causal_attention(q, k, v, pq, pk, activation=activation, **padding)
    torch.testing.assert_close(torch.cat(outputs, dim=2), expected, **TOLERANCE[dtype])
    assert {name: tensor.shape for name, tensor in state._asdict().items()} == sizes


@pytest.mark.parametrize("attention", [naive, chunked], ids=["naive", "chunked"])
def test_no_step_depends_on_a_later_one(attention):
    q, k, v, pq, pk = inputs((1, 2, 150, 4, 3))
    y, weights = attention.luna_causal_attention(q, k, v, pq, pk)
    for output in (y, weights):
        for gradient in torch.autograd.grad(output[:, :, 70].square().sum(), (q, k, pk), retain_graph=True):
            assert gradient[:, :, 71:].abs().max() == 0
            assert gradient[:, :, 70].abs().max() > 0


@pytest.mark.parametrize("attention", [naive, chunked], ids=["naive", "chunked"])
def test_padded_steps_have_no_effect(attention):
    q, k, v, pq, pk = inputs((1, 2, 90, 4, 3))
    mask = random_padding(1, 90, share=0.4)
    mask[0, :5] = True
    real = ~mask[0]
    expected, _ = attention.luna_causal_attention(*(x[:, :, real] for x in (q, k, v)), pq, pk[:, :, real])
    actual, _ = attention.luna_causal_attention(q, k, v, pq, pk, padding_mask=mask)
    torch.testing.assert_close(actual[:, :, real], expected)


def test_padded_slots_have_no_effect():
    q, k, v, pq, pk = inputs((2, 2, 50, 4, 6))
    mask = torch.arange(6).expand(2, 6) >= 4
    expected, _ = chunked.luna_causal_attention(q, k, v, pq[:, :, :4], pk)
    actual, weights = chunked.luna_causal_attention(q, k, v, pq, pk, packed_padding_mask=mask)
    torch.testing.assert_close(actual, expected)
    assert weights[..., 4:].abs().max() == 0


def test_dropout_drops_the_same_weights_in_both_forms():
    args = inputs((2, 2, 60, 4, 3))
    results = []
    for form in (naive, chunked):
        torch.manual_seed(5)
        results.append(form.luna_causal_attention(*args, dropout_p=0.5))
    torch.testing.assert_close(*results)
    undropped = chunked.luna_causal_attention(*args)
    assert (results[1][0] - undropped[0]).abs().max() > 0.01


def test_memory_has_no_state_per_step():
    steps, size, slots = 2048, 64, 32
    args = inputs((1, 1, steps, size, slots), torch.float32)
    with LargestTensor() as largest:
        chunked.luna_causal_attention(*args)[0].sum().backward()
    assert largest.elements <= steps * 64


@pytest.mark.parametrize("scale", [1e-4, 1.0, 1e4])
@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_finite_at_any_scale(activation, scale):
    args = [x.detach() * scale for x in inputs((1, 2, 300, 8, 4), torch.float32)]
    args = [x.requires_grad_() for x in args]
    y, weights = chunked.luna_causal_attention(*args, activation=activation)
    assert torch.isfinite(y).all() and torch.isfinite(weights).all()
    assert all(torch.isfinite(gradient).all() for gradient in torch.autograd.grad(y.sum(), args))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=["fp32", "bf16", "fp16"])
def test_precision_at_100000_steps(dtype):
    args = [x.detach() for x in inputs((1, 1, 100_000, 8, 4), dtype)]
    expected, _ = chunked.luna_causal_attention(*(x.double() for x in args))
    actual, _ = chunked.luna_causal_attention(*args)
    error = (actual.double() - expected).abs().max() / expected.abs().max()
    assert error < {torch.float32: 1e-5, torch.bfloat16: 2e-2, torch.float16: 2e-3}[dtype]
    q, k, v, pq, pk = args
    scores = pack_scores(pq, pk)
    before = recurrent.state_after(*(x[:, :, :-1] for x in (k, v, scores)), tied=False)
    last, _, _ = recurrent.luna_causal_attention_step(*(x[:, :, -1:] for x in (q, k, v, scores)), before)
    torch.testing.assert_close(last.double(), expected[:, :, -1:], **TOLERANCE[dtype])


@pytest.mark.parametrize("form", [naive, chunked], ids=["naive", "chunked"])
def test_an_unknown_activation_is_refused(form):
    with pytest.raises(ValueError, match="activation relu: choose one of softplus, elu"):
        form.luna_causal_attention(*inputs((1, 1, 2, 2, 2)), activation="relu")


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_one_at_zero_and_never_negative(name):
    scores = torch.linspace(-1000, 1000, 100_001, dtype=torch.float64)
    weights = pack_activation(name)(scores)
    assert pack_activation(name)(torch.zeros(())).item() == pytest.approx(1.0)
    assert (weights >= 0).all() and torch.isfinite(weights).all()


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_equals_the_formula(name):
    scores = (torch.arange(-6000, 6001, dtype=torch.float64) / 100).requires_grad_()
    actual, expected = pack_activation(name)(scores), naive.positive(name, scores)
    torch.testing.assert_close(actual, expected, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(gradients(actual, scores), gradients(expected, scores))


def test_softplus_known_values():
    weights = pack_activation("softplus")(torch.tensor([-1.0, 0.0, 1.0, 3.0], dtype=torch.float64))
    expected = torch.tensor([1.5, 2.0, 3.0, 9.0], dtype=torch.float64).log2()
    torch.testing.assert_close(weights, expected)


def test_elu_keeps_its_digits_in_half_precision():
    scores = torch.arange(-12.0, 3.0, dtype=torch.bfloat16)
    exact = torch.where(scores < 0, scores.float().exp(), scores.float() + 1)
    weights = pack_activation("elu")(scores)
    assert weights.dtype == torch.bfloat16
    torch.testing.assert_close(weights.float(), exact, rtol=2**-8, atol=0)
