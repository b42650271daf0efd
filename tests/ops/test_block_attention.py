import functools

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fairseq_luna.ops.block_attention import by_length, chunked, fused, naive, recurrent
from fairseq_luna.ops.block_partition import cut_by_number, cut_by_size
from largest_tensor import LargestTensor
from numeric import EVERY_DTYPE, PADDED, TOLERANCE, gradients, randn, random_padding

SHAPES = [(1, 1, 1, 1), (2, 3, 7, 4), (2, 3, 65, 8), (3, 2, 130, 5)]
SHAPE_IDS = [f"B{b}-H{h}-T{t}-D{d}" for b, h, t, d in SHAPES]
LEVEL_ONE = pytest.mark.parametrize("level_one", ["attention", "mean", "sum"])
CAUSAL = pytest.mark.parametrize("causal", [False, True], ids=["bidirectional", "causal"])
# Unordered blocks have no fused form.
FAST_FORMS = [(chunked, "attention"), (chunked, "mean"), (chunked, "sum"), (fused, "attention")]
FORMS = [(naive, "attention"), (naive, "mean"), (naive, "sum"), *FAST_FORMS]


def each(forms):
    ids = [f"{form.__name__.split('.')[-1]}-{level_one}" for form, level_one in forms]
    return pytest.mark.parametrize(("form", "level_one"), forms, ids=ids)


BLOCK_SIZE = 4


class Second:
    """Projections of the second level: matrices and biases, except for keys: a softmax cancels their bias."""

    def __init__(self, size, dtype=torch.float64, seed=9):
        weights = [randn(size, size, seed=seed + i, grad=False) * size**-0.5 for i in range(3)]
        self.weights = [weight.to(dtype).requires_grad_() for weight in weights]
        self.biases = [randn(size, dtype=dtype, seed=seed + i) for i in range(2)]

    def __call__(self, summaries):
        q, k, v = (summaries @ weight for weight in self.weights)
        return q + self.biases[0], k, v + self.biases[1]

    @property
    def parameters(self):
        return [*self.weights, *self.biases]

    def double(self):
        """The same numbers in fp64."""
        copy = Second(self.weights[0].shape[0])
        copy.weights, copy.biases = ([exact(x) for x in group] for group in (self.weights, self.biases))
        return copy


def exact(x):
    return x.detach().double().requires_grad_()


def inputs(shape, dtype=torch.float64, seed=0, level_one="attention"):
    """Random q, k, v, or only v for unordered blocks; smaller for sums, so that the scores are not large."""
    if level_one == "attention":
        return [randn(*shape, dtype=dtype, seed=seed + i) for i in range(3)]
    v = randn(*shape, seed=seed, grad=False) * (BLOCK_SIZE**-0.5 if level_one == "sum" else 1)
    return [v.to(dtype).requires_grad_()]


def both_levels(form, level_one):
    """The attention of ``form`` with this first level: all take the same arguments, and return zeros at padding."""

    def attention(*args, causal=False, **options):
        op = form.block_attention if level_one == "attention" else form.unordered_block_attention
        if level_one != "attention":
            options["reduce"] = level_one
        y, z = op(*args, causal=causal, **options)
        *_, blocks = args
        if form is not naive:
            z = form.read_blocks(z.transpose(1, 2).flatten(2), blocks, causal=causal).unflatten(2, y.shape[1::2])
            z = z.permute(1, 2, 0, 3)
            assert torch.isfinite(y).all() and torch.isfinite(z).all()
        padded = blocks.padding_mask[:, None, :, None]
        return y.masked_fill(padded, 0), z.masked_fill(padded, 0)

    return attention


def steps_of(level_one):
    if level_one == "attention":
        return functools.partial(recurrent.block_attention_step, block_size=BLOCK_SIZE)
    return functools.partial(recurrent.unordered_block_attention_step, reduce=level_one, block_size=BLOCK_SIZE)


def no_padding(shape):
    return torch.zeros(shape[0], shape[2], dtype=torch.bool)


def cut(mask, causal, random=False):
    if causal:
        return cut_by_size(mask, BLOCK_SIZE, dtype=torch.float64)
    return cut_by_number(mask, 0, random=random, dtype=torch.float64)


def assert_naive_function(form, args, dtype, level_one, blocks, causal):
    """Outputs and gradients of ``form`` equal those of the naive form in fp64."""
    second = Second(args[0].shape[-1], dtype)
    naive_args, naive_second = [exact(x) for x in args], second.double()
    ours = both_levels(form, level_one)(*args, second, blocks, causal=causal)
    theirs = both_levels(naive, level_one)(*naive_args, naive_second, blocks, causal=causal)
    assert all(x.dtype == dtype for x in ours)
    pairs = list(zip(ours, theirs, strict=True))
    wanted, naive_wanted = [*args, *second.parameters], [*naive_args, *naive_second.parameters]
    pairs += zip(gradients(torch.cat(ours), *wanted), gradients(torch.cat(theirs), *naive_wanted), strict=True)
    for actual, expected in pairs:
        scale = expected.abs().max().clamp(min=1)
        torch.testing.assert_close(actual.double() / scale, expected / scale, **TOLERANCE[dtype])


@each(FAST_FORMS)
@CAUSAL
@PADDED
@EVERY_DTYPE
@pytest.mark.parametrize("shape", SHAPES, ids=SHAPE_IDS)
def test_fast_forms_equal_naive(shape, dtype, padded, causal, form, level_one):
    mask = random_padding(shape[0], shape[2], share=0.3) if padded else no_padding(shape)
    args = inputs(shape, dtype, level_one=level_one)
    assert_naive_function(form, args, dtype, level_one, cut(mask, causal), causal)


@settings(max_examples=80, deadline=None)
@given(
    shape=st.tuples(*(st.integers(1, high) for high in (3, 2, 50, 6))),
    form=st.sampled_from(FAST_FORMS),
    causal=st.booleans(),
    random=st.booleans(),
    share=st.sampled_from([0.0, 0.3, 0.9, 1.0]),
    seed=st.integers(0, 1000),
)
def test_any_shape_cut_and_padding(shape, form, causal, random, share, seed):
    form, level_one = form
    mask = random_padding(shape[0], shape[2], share=share, seed=seed)
    args = inputs(shape, seed=seed, level_one=level_one)
    assert_naive_function(form, args, torch.float64, level_one, cut(mask, causal, random), causal)


@LEVEL_ONE
@pytest.mark.parametrize("at_once", [1, 3], ids=["one", "three"])
@pytest.mark.parametrize("start_of_padding", [0, 18, 20, 39], ids=["padded", "after-18", "after-20", "whole"])
@EVERY_DTYPE
def test_recurrent_equals_naive_a_few_steps_at_a_time(dtype, at_once, level_one, start_of_padding):
    shape = (3, 2, 39, 8)
    args = inputs(shape, dtype, level_one=level_one)
    second = Second(8, dtype)
    mask = random_padding(3, 39, share=0.3)
    mask[0, :6], mask[1, :], mask[:, :start_of_padding] = True, False, False
    state, outputs = recurrent.initial_state(args[-1]), []
    for t in range(0, 39, at_once):
        step = slice(t, t + at_once)
        padding = mask[:, step] if mask[:, step].any() else None
        *out, state = steps_of(level_one)(*(x[:, :, step] for x in args), second, state, padding_mask=padding)
        outputs.append(torch.stack(out))
    expected = both_levels(naive, level_one)(*args, second, cut(mask, True), causal=True)
    actual = torch.cat(outputs, dim=3).masked_fill(mask[:, None, :, None], 0)
    torch.testing.assert_close(actual, torch.stack(expected), **TOLERANCE[dtype])
    if start_of_padding < 39:
        assert state.steps.equal((~mask).sum(1))
    else:
        assert state.steps is None and state.block_keys.shape[2] == 39 // BLOCK_SIZE


@each(FORMS)
def test_no_step_depends_on_a_later_one(form, level_one):
    args = inputs((1, 2, 90, 4), level_one=level_one)
    blocks = cut(torch.zeros(1, 90, dtype=torch.bool), True)
    y, z = both_levels(form, level_one)(*args, Second(4), blocks, causal=True)
    for t in (0, 3, 4, 50, 89):
        (seen,) = torch.autograd.grad((y[:, :, t].square() + z[:, :, t].square()).sum(), args[-1], retain_graph=True)
        assert not seen[:, :, t + 1 :].any()
        # Its own block up to itself, and all complete blocks through their summaries.
        assert (seen[:, :, : t + 1].abs().amax((0, 1, 3)) > 0).all()


@each(FORMS)
def test_the_first_causal_block_reads_nothing_from_the_second_level(form, level_one):
    args = inputs((2, 2, 12, 4), level_one=level_one)
    blocks = cut(torch.zeros(2, 12, dtype=torch.bool), True)
    _, z = both_levels(form, level_one)(*args, Second(4), blocks, causal=True)
    assert not z[:, :, :BLOCK_SIZE].any() and z[:, :, BLOCK_SIZE:].abs().amin() > 0


@each(FORMS)
@CAUSAL
def test_padding_has_no_effect_at_any_position(form, causal, level_one):
    args = inputs((2, 2, 60, 4), level_one=level_one)
    mask = random_padding(2, 60, share=0.4)
    mask[0, :5] = mask[1, -9:] = True
    second = Second(4)
    batch = both_levels(form, level_one)(*args, second, cut(mask, causal), causal=causal)
    for row in range(2):
        real = ~mask[row]
        alone = [x[row : row + 1, :, real] for x in args]
        blocks = cut(no_padding(alone[0].shape), causal)
        expected = both_levels(form, level_one)(*alone, second, blocks, causal=causal)
        for ours, theirs in zip(batch, expected, strict=True):
            torch.testing.assert_close(ours[row : row + 1, :, real], theirs)


@CAUSAL
@pytest.mark.parametrize("reduce", ["mean", "sum"])
def test_unordered_blocks_ignore_the_order_of_their_steps(reduce, causal):
    (v,) = inputs((2, 2, 64, 4), level_one=reduce)
    blocks = cut(torch.zeros(2, 64, dtype=torch.bool), causal)
    order = torch.argsort(blocks.block[0] + torch.rand(64, generator=torch.Generator().manual_seed(0)))
    assert not order.equal(torch.arange(64))
    attention, second = both_levels(chunked, reduce), Second(4)
    (y, z), (y_after, z_after) = (attention(x, second, blocks, causal=causal) for x in (v, v[:, :, order]))
    torch.testing.assert_close(z_after, z)
    # In the causal form only the last step of a block depends on all steps of the block.
    complete = slice(BLOCK_SIZE - 1, None, BLOCK_SIZE) if causal else slice(None)
    torch.testing.assert_close(y_after[:, :, complete], y[:, :, complete])


@LEVEL_ONE
@CAUSAL
def test_memory_has_no_pairs_of_steps(causal, level_one):
    steps, size = 4096, 16
    args = inputs((1, 1, steps, size), torch.float32, level_one=level_one)
    blocks = cut_by_size(no_padding(args[0].shape), 16) if causal else cut_by_number(no_padding(args[0].shape), 0)
    count, capacity = blocks.sizes.shape[1], blocks.capacity
    form = by_length if level_one == "attention" else chunked
    with LargestTensor() as largest:
        y, z = both_levels(form, level_one)(*args, Second(size, torch.float32), blocks, causal=causal)
        (y + z).sum().backward()
    together = 3 * size  # queries, keys and values are gathered at once
    assert largest.elements <= max(1.2 * steps * max(together, capacity), count**2)
    assert largest.elements < steps**2 / 50


def test_the_form_depends_on_the_length():
    for steps, pairs in ((by_length.LONGEST_FUSED, True), (by_length.LONGEST_FUSED + 1, False)):
        args = inputs((1, 1, steps, 2))
        with LargestTensor() as largest:
            both_levels(by_length, "attention")(*args, Second(2), cut(no_padding((1, 1, steps, 2)), True), causal=True)
        assert (largest.elements == steps**2) is pairs


@CAUSAL
@pytest.mark.parametrize("form", [naive, chunked, fused], ids=["naive", "chunked", "fused"])
def test_dropout_drops_weights_of_both_levels_and_keeps_the_mean(form, causal):
    args = inputs((200, 2, 30, 4))
    args = [x[:1].expand_as(x) for x in args]
    blocks = cut(torch.zeros(200, 30, dtype=torch.bool), causal)
    torch.manual_seed(0)
    attention = both_levels(form, "attention")
    whole, _ = attention(*args, Second(4), blocks, causal=causal)
    y, z = attention(*args, Second(4), blocks, causal=causal, dropout_p=0.5)
    assert y.std(0).amin() > 1e-4
    assert z[:, :, BLOCK_SIZE if causal else 0 :].std(0).amin() > 1e-4
    torch.testing.assert_close(y.mean(0), whole[0], rtol=0, atol=0.5)


@CAUSAL
@pytest.mark.parametrize("form", [naive, chunked], ids=["naive", "chunked"])
def test_dropout_of_unordered_blocks_drops_only_weights_of_the_second_level(form, causal):
    v = inputs((200, 2, 30, 4))[0][:1].expand(200, -1, -1, -1)
    blocks = cut(torch.zeros(200, 30, dtype=torch.bool), causal)
    torch.manual_seed(0)
    y, z = both_levels(form, "mean")(v, Second(4), blocks, causal=causal, dropout_p=0.5)
    assert y.std(0).amax() < 1e-12
    assert z[:, :, BLOCK_SIZE if causal else 0 :].std(0).amin() > 1e-4


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=["bf16", "fp16"])
def test_the_state_before_the_first_step(dtype):
    state = recurrent.initial_state(randn(2, 3, 1, 4, dtype=dtype))
    assert state.steps is None and state.unused is None
    *nothing, read = (x for x in state if x is not None)
    assert {x.shape for x in nothing} == {(2, 3, 0, 4)} and read.shape == (2, 3, 1, 4)
    assert {x.dtype for x in (*nothing, read)} == {dtype}


def test_dropout_of_a_step_drops_weights_of_both_levels():
    q, k, v = (x[:1].expand(200, -1, -1, -1) for x in inputs((200, 2, 12, 4)))
    torch.manual_seed(0)
    state = recurrent.initial_state(v)
    y, _, _ = recurrent.block_attention_step(q, k, v, Second(4), state, block_size=BLOCK_SIZE, dropout_p=0.5)
    assert y.std(0).amin() > 1e-4
    given = {"reduce": "mean", "block_size": BLOCK_SIZE, "dropout_p": 0.5}
    y, z, _ = recurrent.unordered_block_attention_step(v, Second(4), state, **given)
    assert y.std(0).amax() < 1e-12
    assert z[:, :, BLOCK_SIZE:].std(0).amin() > 1e-4


@each(FORMS)
def test_later_steps_are_seen_unless_causal(form, level_one):
    args = inputs((2, 2, 12, 4), level_one=level_one)
    blocks = cut(no_padding((2, 2, 12, 4)), True)
    attention = both_levels(form, level_one)
    default = attention(*args, Second(4), blocks)
    for ours, theirs in zip(default, attention(*args, Second(4), blocks, causal=False), strict=True):
        assert ours.equal(theirs)


@LEVEL_ONE
@CAUSAL
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=["fp32", "bf16", "fp16"])
def test_precision_at_50000_steps(dtype, causal, level_one):
    args = [x.detach() for x in inputs((1, 1, 50_000, 4), dtype, level_one=level_one)]
    if level_one == "sum":
        args = [x / BLOCK_SIZE for x in args]
    mask = no_padding(args[0].shape)
    blocks = cut_by_size(mask, 64, dtype=torch.float64) if causal else cut(mask, False)
    second = Second(4, dtype)
    with torch.no_grad():
        attention = both_levels(chunked, level_one)
        expected = attention(*(x.double() for x in args), second.double(), blocks, causal=causal)
        actual = attention(*args, second, blocks, causal=causal)
    for ours, theirs in zip(actual, expected, strict=True):
        error = (ours.double() - theirs).abs().max() / theirs.abs().max()
        assert error < {torch.float32: 1e-5, torch.bfloat16: 2e-2, torch.float16: 3e-3}[dtype]


@each(FORMS)
@CAUSAL
def test_a_row_of_padding_is_zero_with_finite_gradients(form, causal, level_one):
    args = inputs((2, 2, 9, 4), level_one=level_one)
    mask = torch.zeros(2, 9, dtype=torch.bool)
    mask[1] = True
    second = Second(4)
    y, z = both_levels(form, level_one)(*args, second, cut(mask, causal), causal=causal)
    assert not y[1].any() and not z[1].any() and y[0].abs().max() > 0
    for gradient in gradients(torch.cat([y, z]), *args, *second.parameters):
        assert torch.isfinite(gradient).all()
