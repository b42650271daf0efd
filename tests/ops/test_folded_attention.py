import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st

from fairseq_luna.ops.folded_attention import Affine, folding_pays, fused, naive
from numeric import EVERY_DTYPE, PADDED, TOLERANCE, gradients, randn, random_padding

SHAPES = [(1, 1, 1, 1, 2), (2, 3, 7, 4, 5), (3, 4, 65, 16, 8)]
SHAPE_IDS = [f"B{b}-H{h}-T{t}-L{s}-D{d}" for b, h, t, s, d in SHAPES]
BIAS = pytest.mark.parametrize("bias", [True, False], ids=["bias", "no-bias"])
EVERY_SHAPE = pytest.mark.parametrize("shape", SHAPES, ids=SHAPE_IDS)


def sequence_and_slots(shape, dtype):
    batch, heads, steps, slots, size = shape
    sequence = randn(batch, steps, heads * size, dtype=dtype)
    return sequence, *(randn(batch, heads, slots, size, dtype=dtype, seed=seed) for seed in (1, 2))


def maps(shape, dtype, bias=True):
    channels = shape[1] * shape[4]
    weights = [(randn(channels, channels, grad=False, seed=seed) * channels**-0.5).to(dtype) for seed in (3, 4)]
    return [
        Affine(weight.requires_grad_(), randn(channels, dtype=dtype, seed=seed) if bias else None)
        for seed, weight in enumerate(weights, start=5)
    ]


def parameters(*affines):
    return [x for affine in affines for x in affine if x is not None]


def check(actual, expected, wanted, dtype):
    torch.testing.assert_close(actual, expected, **TOLERANCE[dtype])
    tolerance = dict(TOLERANCE[dtype])
    for ours, theirs in zip(gradients(actual, *wanted), gradients(expected, *wanted), strict=True):
        # Half precision rounds sums over all steps: differences are relative to the largest element.
        close = tolerance | {"atol": tolerance["atol"] * max(1, theirs.abs().max().item())}
        torch.testing.assert_close(ours, theirs, **close)


@EVERY_SHAPE
@EVERY_DTYPE
@PADDED
@BIAS
def test_fused_pack_equals_naive(shape, dtype, padded, bias):
    context, q, _ = sequence_and_slots(shape, dtype)
    key, value = maps(shape, dtype, bias)
    mask = random_padding(shape[0], shape[2], share=0.4) if padded else None
    actual, expected = (form.pack(q, context, key, value, padding_mask=mask) for form in (fused, naive))
    check(actual, expected, [q, context, *parameters(key, value)], dtype)


@EVERY_DTYPE
@PADDED
def test_a_bias_of_the_pack_scores(dtype, padded):
    shape = SHAPES[2]
    context, q, _ = sequence_and_slots(shape, dtype)
    key, value = maps(shape, dtype)
    added = randn(1, 4, 16, 65, dtype=dtype, seed=9)
    mask = random_padding(3, 65, share=0.4) if padded else None
    actual, expected = (form.pack(q, context, key, value, padding_mask=mask, bias=added) for form in (fused, naive))
    check(actual, expected, [q, context, added, *parameters(key, value)], dtype)


@EVERY_SHAPE
@EVERY_DTYPE
@PADDED
@BIAS
def test_fused_unpack_equals_naive(shape, dtype, padded, bias):
    x, k, v = sequence_and_slots(shape, dtype)
    query, out = maps(shape, dtype, bias)
    mask = random_padding(shape[0], shape[3], share=0.4) if padded else None
    actual, expected = (form.unpack(x, k, v, query, out, padding_mask=mask) for form in (fused, naive))
    check(actual, expected, [x, k, v, *parameters(query, out)], dtype)


@settings(max_examples=40, deadline=None)
@given(
    shape=st.tuples(*(st.integers(1, high) for high in (3, 3, 40, 9, 5))),
    share=st.sampled_from([0.0, 0.5, 1.0]),
    seed=st.integers(0, 1000),
)
def test_any_shape_and_padding(shape, share, seed):
    sequence, k, v = sequence_and_slots(shape, torch.float64)
    first, second = maps(shape, torch.float64)
    step_mask, slot_mask = (random_padding(shape[0], shape[axis], share=share, seed=seed) for axis in (2, 3))
    wanted = [sequence, k, *parameters(first, second)]
    packed = [form.pack(k, sequence, first, second, padding_mask=step_mask) for form in (fused, naive)]
    check(*packed, wanted, torch.float64)
    read = [form.unpack(sequence, k, v, first, second, padding_mask=slot_mask) for form in (fused, naive)]
    check(*read, [*wanted, v], torch.float64)


def test_dropout_drops_the_same_weights_in_both_forms(monkeypatch):
    shape = (2, 3, 50, 4, 5)
    sequence, k, v = sequence_and_slots(shape, torch.float64)
    first, second = maps(shape, torch.float64)
    factors = torch.rand(2, 3, 50, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64).gt(0.3) / 0.7
    layouts = [  # of the weights of each form: pack, unpack
        (fused, factors.transpose(2, 3).flatten(1, 2), factors.transpose(1, 2)),
        (naive, factors.transpose(2, 3), factors),
    ]
    packed, read = [], []
    for form, pack_factors, unpack_factors in layouts:
        monkeypatch.setattr(F, "dropout", lambda x, p, factors=pack_factors: x * factors if p == 0.3 else None)
        packed.append(form.pack(k, sequence, first, second, dropout_p=0.3))
        monkeypatch.setattr(F, "dropout", lambda x, p, factors=unpack_factors: x * factors if p == 0.3 else None)
        read.append(form.unpack(sequence, k, v, first, second, dropout_p=0.3))
    wanted = [sequence, k, *parameters(first, second)]
    check(*packed, wanted, torch.float64)
    check(*read, [*wanted, v], torch.float64)


@pytest.mark.parametrize(
    ("steps", "slots", "maps", "pays"),
    [(1024, 64, 2, True), (1024, 64, 1, True), (1024, 128, 1, False), (25, 64, 2, False), (1, 64, 2, False)],
)
def test_folding_is_for_long_sequences_and_few_slots(steps, slots, maps, pays):
    assert folding_pays(steps=steps, slots=slots, channels=256, maps=maps, products=2) is pays
